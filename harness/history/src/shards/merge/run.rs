//! Parts of the merged report that concern the whole run: waivers, cost of the agent, tracked objects.

use memgate_model::{AgentCost, Followed, RunReport, WaiverReport, WaiverState};

use super::super::ShardReport;

/// A waiver is unused only if no shard used it, all tests ran and all were measured.
pub(super) fn waivers(reports: &[(&ShardReport, &RunReport)], partial: bool) -> Vec<WaiverReport> {
    let mut waivers = Vec::<WaiverReport>::new();
    for waiver in reports.iter().flat_map(|(_, report)| &report.waivers) {
        let same = |known: &&mut WaiverReport| {
            (&known.matches, &known.reason, &known.until) == (&waiver.matches, &waiver.reason, &waiver.until)
        };
        match waivers.iter_mut().find(same) {
            Some(known) => {
                known.used = known.used.saturating_add(waiver.used);
                known.named |= waiver.named;
            }
            None => waivers.push(waiver.clone()),
        }
    }
    for waiver in &mut waivers {
        let is_named = waiver.used > 0 || waiver.named;
        if is_named {
            waiver.fixed = None;
        }
        if waiver.state != WaiverState::Expired {
            waiver.state = if is_named || partial { WaiverState::InForce } else { WaiverState::Unused };
        }
    }
    waivers
}

/// The ratio is computed from the total CPU time. Memory is that of the largest process.
pub(super) fn agent_cost<'a>(costs: impl Iterator<Item = &'a AgentCost>) -> AgentCost {
    let mut sum = AgentCost::default();
    let mut without_s = 0.0;
    for cost in costs {
        sum.cpu_s += cost.cpu_s;
        without_s +=
            cost.cpu_ratio.filter(|ratio| *ratio > 0.0).map_or(cost.cpu_s, |ratio| cost.cpu_s / ratio);
        sum.peak_bytes = sum.peak_bytes.max(cost.peak_bytes);
        sum.boundary_s += cost.boundary_s;
        sum.truncated_stacks = sum.truncated_stacks.saturating_add(cost.truncated_stacks);
        sum.repeated_s += cost.repeated_s;
    }
    sum.cpu_ratio = Some(sum.cpu_s / without_s).filter(|ratio| without_s > 0.0 && ratio.is_finite());
    sum
}

/// Adds up sites and classes of the same name.
pub(super) fn followed<'a>(all: impl Iterator<Item = &'a Followed>) -> Option<Followed> {
    all.cloned().reduce(|mut sum, more| {
        for site in more.sites {
            match sum.sites.iter_mut().find(|known| known.class == site.class && known.frames == site.frames)
            {
                Some(known) => {
                    known.add_totals(site.totals());
                    for (known, more) in known.lifetimes.iter_mut().zip(site.lifetimes) {
                        *known = known.saturating_add(more);
                    }
                }
                None => sum.sites.push(site),
            }
        }
        sum.sites.sort_by_key(|site| std::cmp::Reverse((site.live_bytes, site.bytes)));
        for blamed in more.blame {
            match sum.blame.iter_mut().find(|known| known.class == blamed.class) {
                Some(known) => known.add_totals(blamed.totals()),
                None => sum.blame.push(blamed),
            }
        }
        sum.blame.sort_by_key(|blamed| std::cmp::Reverse(blamed.live_bytes));
        sum.all.add_totals(more.all);
        sum.left_out = sum.left_out.saturating_add(more.left_out);
        sum.lost = sum.lost.saturating_add(more.lost);
        sum.pauses = sum.pauses.saturating_add(more.pauses);
        sum
    })
}

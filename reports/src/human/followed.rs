//! How followed objects ended: allocation sites, how many objects they made, how many are left, and how long the others
//! lived.

use memgate_model::{Blamed, Followed, FollowedSite, LIFETIMES_NS, format_bytes, format_number_of};

use crate::figures::GAP;
use crate::human::paint::Paint;
use crate::human::stack::source;
use crate::visible::visible;

/// Sites shown, unless all are requested, and frames of each.
const SITES: usize = 10;
const FRAMES: usize = 3;

/// The section; empty if nothing was followed.
pub(super) fn section(followed: Option<&Followed>, paint: Paint, verbose: bool) -> String {
    let Some(followed) = followed else { return String::new() };
    let mut text = format!(
        "{}{GAP}{} allocated, {}, {} alive at the end\n",
        paint.strong("FOLLOWED"),
        counted(followed.all.allocations),
        bytes(followed.all.bytes),
        followed.all.live,
    );
    let shown = if verbose { followed.sites.len() } else { SITES };
    for site in followed.sites.iter().take(shown) {
        text += &one(site, paint, verbose);
    }
    let hidden = followed.left_out.saturating_add(followed.sites.len().saturating_sub(shown) as u64);
    if hidden > 0 {
        text += &format!("      and {hidden} more sites\n");
    }
    let blamed = if verbose { followed.blame.len() } else { SITES };
    for Blamed { class, allocations, bytes: all, live, live_bytes } in followed.blame.iter().take(blamed) {
        text += &format!(
            "      {:12}  {}{GAP}{}, {}{GAP}{live} alive, {}\n",
            "allocated by",
            visible(class),
            counted(*allocations),
            bytes(*all),
            bytes(*live_bytes)
        );
    }
    if followed.lost > 0 {
        text +=
            &format!("      {} allocations or ends are missing: there was no room for them\n", followed.lost);
    }
    if followed.pauses > 0 {
        text += &format!("      paused {}: what was allocated then is missing\n", times(followed.pauses));
    }
    text
}

fn one(site: &FollowedSite, paint: Paint, verbose: bool) -> String {
    let mut text = format!(
        "      {} × {}, {}{GAP}{} alive, {}{GAP}{}\n",
        site.allocations,
        visible(&site.class),
        bytes(site.bytes),
        site.live,
        bytes(site.live_bytes),
        lifetimes(&site.lifetimes),
    );
    let shown = if verbose { site.frames.len() } else { FRAMES };
    for (index, frame) in site.frames.iter().take(shown).enumerate() {
        let label = if index == 0 { "allocated at" } else { "" };
        let function = frame.function.as_deref().unwrap_or("?");
        text += &format!("      {label:12}  {}{}\n", visible(function), paint.faint(source(frame)));
    }
    text
}

pub(crate) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// `lived < 1 ms 12, < 10 ms 3, longer 1`; zeros are left out.
pub(crate) fn lifetimes(counts: &[u64]) -> String {
    let limits = LIFETIMES_NS.iter().map(|ns| {
        let ms = ns / 1_000_000;
        if ms < 1000 { format!("< {ms} ms") } else { format!("< {} s", ms / 1000) }
    });
    let named = limits.chain(["longer".to_owned()]).zip(counts).filter(|(_, count)| **count > 0);
    let parts: Vec<String> = named.map(|(limit, count)| format!("{limit} {count}")).collect();
    if parts.is_empty() { "none collected".to_owned() } else { format!("lived {}", parts.join(", ")) }
}

fn counted(objects: u64) -> String {
    format_number_of(objects, "object")
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn bytes(bytes: u64) -> String {
    format_bytes(bytes as f64)
}

#[cfg(test)]
mod tests {
    use memgate_model::{FollowedTotal, Frame};

    use super::*;

    #[test]
    fn a_site_tells_how_many_are_left_and_how_long_the_others_lived() {
        let frame = Frame {
            function: Some("com.example.Registry.load".into()),
            file: Some("Registry.java".into()),
            line: Some(13),
            ..Frame::default()
        };
        let site = FollowedSite {
            class: "com.example.Tile".into(),
            frames: vec![frame],
            allocations: 12,
            bytes: 288,
            live: 2,
            live_bytes: 48,
            lifetimes: vec![0, 7, 0, 0, 0, 3],
        };
        let by = Blamed {
            class: "com.example.Registry".into(),
            allocations: 12,
            bytes: 288,
            live: 2,
            live_bytes: 48,
        };
        let all = FollowedTotal { allocations: 20, bytes: 480, live: 5, live_bytes: 120 };
        let value = Followed { sites: vec![site], blame: vec![by], all, left_out: 4, lost: 1, pauses: 2 };
        let want = "FOLLOWED   20 objects allocated, 480 B, 5 alive at the end
      12 × com.example.Tile, 288 B   2 alive, 48 B   lived < 10 ms 7, longer 3
      allocated at  com.example.Registry.load(Registry.java:13)
      and 4 more sites
      allocated by  com.example.Registry   12 objects, 288 B   2 alive, 48 B
      1 allocations or ends are missing: there was no room for them
      paused 2 times: what was allocated then is missing
";
        assert_eq!(section(Some(&value), Paint::new(false), false), want);
        assert_eq!(section(None, Paint::new(false), false), "");
    }
}

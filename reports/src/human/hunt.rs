//! The tests that `--hunt` repeated, in one line.

use memgate_model::Hunt;

use crate::visible::visible;

/// Most tests named that cannot be repeated.
const SHOWN_FAILURES: usize = 3;

/// `hunt: 132 of 140 tests repeated, 212 to 5400 executions each: a leak in one of 46 would have
/// been missed with 1 % at most`.
pub(crate) fn hunted(hunt: &Hunt) -> String {
    if let Some(why) = &hunt.not_hunted {
        return format!("hunt: nothing was repeated: {}", visible(why));
    }
    let what = match (hunt.classes, hunt.of) {
        (_, 0) => return "hunt: nothing is left that was not repeated before".to_owned(),
        (false, 1) => "test",
        (false, _) => "tests",
        (true, 1) => "test class",
        (true, _) => "test classes",
    };
    let mut text = format!("hunt: {} of {} {what} repeated", hunt.repeated, hunt.of);
    if hunt.repeated > 0 {
        let (least, most) = hunt.executions;
        let executions = if least == most {
            format!("{least} executions")
        } else {
            format!("{least} to {most} executions each")
        };
        text += &format!(
            ", {executions}: a leak in one of {} would have been missed with 1 % at most",
            hunt.one_in
        );
    }
    if hunt.grew > 0 {
        let were = if hunt.grew == 1 { "was" } else { "were" };
        text += &format!("; {} grew and {were} judged", hunt.grew);
    }
    if hunt.not_reached > 0 {
        text += &format!("; no time for {}", hunt.not_reached);
    }
    if hunt.failing > 0 {
        let shown: Vec<_> =
            hunt.failures.iter().take(SHOWN_FAILURES).map(|failure| visible(failure)).collect();
        let more = usize::try_from(hunt.failing).unwrap_or(usize::MAX).saturating_sub(shown.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        text += &format!("; {} cannot be repeated: {}{more}", hunt.failing, shown.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_repeated_and_what_was_not_is_said() {
        let all = Hunt { of: 140, repeated: 132, executions: (212, 5400), one_in: 46, ..Hunt::default() };
        let text = "hunt: 132 of 140 tests repeated, 212 to 5400 executions each: a leak in one of 46 would have been missed with 1 % at most";
        assert_eq!(hunted(&all), text);
        let failures = ["A.a: it fails when it runs alone, again and again".to_owned()].to_vec();
        let rest = Hunt { grew: 1, not_reached: 5, failing: 2, failures, ..all };
        let more = "; 1 grew and was judged; no time for 5; 2 cannot be repeated: A.a: it fails when it runs alone, again and again; and 1 more";
        assert_eq!(hunted(&rest), format!("{text}{more}"));
        let class =
            Hunt { classes: true, of: 1, repeated: 1, executions: (9, 9), one_in: 2, ..Hunt::default() };
        let text = "hunt: 1 of 1 test class repeated, 9 executions: a leak in one of 2 would have been missed with 1 % at most";
        assert_eq!(hunted(&class), text);
        let none = Hunt { not_hunted: Some("the process is the test".to_owned()), ..Hunt::default() };
        assert_eq!(hunted(&none), "hunt: nothing was repeated: the process is the test");
        assert_eq!(hunted(&Hunt::default()), "hunt: nothing is left that was not repeated before");
    }
}

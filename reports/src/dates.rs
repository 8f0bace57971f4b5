//! Days between two dates in reports. The reporters have no clock: today is the day on which the run began.

/// Days from the date at the start of `started` to `until`; `None`: one of them is not a date.
pub(crate) fn days_until(started: &str, until: &str) -> Option<i64> {
    Some(day(until)? - day(started.get(..10)?)?)
}

/// Days since 1970 of `2027-03-01` (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn day(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-');
    let mut part = || parts.next()?.parse::<i64>().ok();
    let (year, month, day) = (part()?, part()?, part()?);
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_over_months_and_leap_years() {
        for (started, until, days) in [
            ("2026-11-21T10:15:00+01:00", "2026-11-21", Some(0)),
            ("2026-11-21T10:15:00+01:00", "2026-12-01", Some(10)),
            ("2028-02-28T00:00:00Z", "2028-03-01", Some(2)),
            ("2027-02-28T00:00:00Z", "2027-03-01", Some(1)),
            ("2026-12-31T00:00:00Z", "2027-01-01", Some(1)),
            ("2026-11-21", "never", None),
            ("", "2027-01-01", None),
            ("größer als", "2027-01-01", None),
        ] {
            assert_eq!(days_until(started, until), days, "{started} {until}");
        }
    }
}

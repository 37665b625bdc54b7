/// Unix milliseconds as ISO 8601 in UTC, like `2026-11-30T19:21:40.000Z`.
pub(crate) fn iso(milliseconds: i64) -> String {
    let (days, rest) = (milliseconds.div_euclid(86_400_000), milliseconds.rem_euclid(86_400_000));
    // Years that begin on the 1st of March end with the leap day; eras of 400 of them are all alike.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (era * 400 + year_of_era, month + 3),
        false => (era * 400 + year_of_era + 1, month - 9),
    };
    let (seconds, thousandths) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{thousandths:03}Z")
}

/// The Unix milliseconds of a time like `2026-11-30T19:21:40.000Z`, in UTC.
pub(crate) fn from_iso(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, by| -> Option<Vec<i64>> { text.split(by).map(|number| number.parse().ok()).collect() };
    let ([year, month, day], [hour, minute, second]) =
        (numbers(date, '-')?.try_into().ok()?, numbers(time, ':')?.try_into().ok()?);
    let thousandths: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && (0..=9999).contains(&year);
    let in_day = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !in_range || !in_day {
        return None;
    }
    // As in `iso`, the other way round.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + thousandths)
}

#[cfg(test)]
mod tests {
    use super::{from_iso, iso};

    /// As `date --utc` says.
    #[test]
    fn times_are_written_as_iso_8601() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_796_066_500_250, "2026-11-30T19:21:40.250Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso(milliseconds), expected);
            assert_eq!(from_iso(expected), Some(milliseconds));
        }
        assert_eq!(from_iso("2024-03-01T00:00:00Z"), Some(1_709_251_200_000));
        for none in
            ["", "2024-03-01", "2024-13-01T00:00:00Z", "2024-03-01T00:00:00", "a-b-cTd:e:fZ", "2024-03-01T24:00:00Z"]
        {
            assert_eq!(from_iso(none), None, "{none}");
        }
    }
}

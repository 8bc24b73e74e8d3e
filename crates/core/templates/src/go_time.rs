//! Times in UTC in Go's layouts, which show the form of the time `Mon Jan 2 15:04:05 MST 2006`.

use caravan_types::UnixNanos;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The default layout.
pub(crate) const RFC_3339: &str = "2006-01-02T15:04:05Z07:00";

/// Parts of layouts with their `strftime` equivalents. Longer parts precede their own prefixes.
const PARTS: [(&str, &str); 29] = [
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "UTC"),
    ("2006", "%Y"),
    ("-07:00:00", "+00:00:00"),
    ("-07:00", "+00:00"),
    ("-070000", "+000000"),
    ("-0700", "+0000"),
    ("-07", "+00"),
    ("Z07:00:00", "Z"),
    ("Z07:00", "Z"),
    ("Z070000", "Z"),
    ("Z0700", "Z"),
    ("Z07", "Z"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("_2", "%e"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("1", "%-m"),
    ("2", "%-d"),
];
/// Single digits, which match only if no longer part does.
const SHORT: [(&str, &str); 3] = [("3", "%-I"), ("4", "%-M"), ("5", "%-S")];

/// Formats a time.
pub(crate) fn format(at: UnixNanos, layout: &str) -> Result<String, String> {
    if layout.len() > 1024 {
        return Err("the layout of a time is too long".to_owned());
    }
    let time = Timestamp::from_nanosecond(i128::from(at.0)).map_err(|error| error.to_string())?;
    let zoned = time.to_zoned(TimeZone::UTC);
    let nanos = at.0.rem_euclid(1_000_000_000);
    let mut out = String::new();
    let mut rest = layout;
    while let Some(c) = rest.chars().next() {
        if let Some((text, length)) = fraction(rest, nanos, out.ends_with(|c: char| c.is_ascii_digit())) {
            out.push_str(&text);
            rest = &rest[length..];
            continue;
        }
        match PARTS.iter().chain(&SHORT).find(|(part, _)| rest.starts_with(part)) {
            Some((part, directive)) => {
                out.push_str(&zoned.strftime(directive).to_string());
                rest = &rest[part.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Ok(out)
}

/// Formats fractional seconds: `.000` with that many digits, `.999` without trailing zeros.
fn fraction(layout: &str, nanos: i64, after_digit: bool) -> Option<(String, usize)> {
    let mark = layout.chars().next().filter(|c| matches!(c, '.' | ','))?;
    let digits = &layout[1..];
    let kind = digits.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let length = digits.chars().take_while(|c| *c == kind).count();
    let ends = !digits[length..].starts_with(|c: char| c.is_ascii_digit());
    if !after_digit || !ends || length > 9 {
        return None;
    }
    let all = format!("{nanos:09}");
    let shown = match kind {
        '0' => &all[..length],
        _ => all[..length].trim_end_matches('0'),
    };
    Some((if shown.is_empty() { String::new() } else { format!("{mark}{shown}") }, length + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_as_go_reads_them() {
        let at = UnixNanos(1_136_239_445_120_000_000);
        for (layout, expected) in [
            (RFC_3339, "2006-01-02T22:04:05Z"),
            ("Mon Jan _2 15:04:05 2006", "Mon Jan  2 22:04:05 2006"),
            ("Monday, 02-Jan-06 15:04:05 MST", "Monday, 02-Jan-06 22:04:05 UTC"),
            ("2006-01-02T15:04:05.000Z07:00", "2006-01-02T22:04:05.120Z"),
            ("2006-01-02T15:04:05.999999999-07:00", "2006-01-02T22:04:05.12+00:00"),
            ("3:04PM, day 002, 1/2/06", "10:04PM, day 002, 1/2/06"),
            ("at 5 past 4%", "at 5 past 4%"),
        ] {
            assert_eq!(format(at, layout).unwrap(), expected, "{layout}");
        }
    }
}

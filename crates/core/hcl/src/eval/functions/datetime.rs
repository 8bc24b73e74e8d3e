//! `formatdate` and `timeadd`, on RFC 3339 timestamps.

use super::{Function, P, Result, blame, f, text};
use crate::duration::parse_duration;
use crate::value::Value;
use std::fmt::Write as _;

pub(super) const TABLE: &[Function] = &[
    f("formatdate", &[("format", P::Str), ("time", P::Str)], |_, a| {
        let stamp = Stamp::parse(&text(&a[1])).map_err(|e| blame(1, e.text))?;
        formatdate(&text(&a[0]), stamp).map(Value::str).map_err(|e| blame(0, e.text))
    }),
    f("timeadd", &[("timestamp", P::Str), ("duration", P::Str)], |_, a| {
        let stamp = Stamp::parse(&text(&a[0]))?;
        let by = parse_duration(&text(&a[1]))?;
        Ok(Value::str(stamp.plus(by).to_string()))
    }),
];

/// A local time with its offset from UTC.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    /// Nanoseconds of local time since 1970-01-01.
    local: i128,
    /// Minutes east of UTC.
    offset: i32,
}

const DAY: i128 = 86_400_000_000_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

impl Stamp {
    fn parse(s: &str) -> Result<Self> {
        Self::read(s).ok_or_else(|| format!("not a valid RFC3339 timestamp: {s:?}").into())
    }

    fn read(s: &str) -> Option<Self> {
        let n = |from: usize, to: usize| {
            s.get(from..to).filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?.parse::<u32>().ok()
        };
        let is = |at: usize, c: u8| s.as_bytes().get(at) == Some(&c);
        if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
            return None;
        }
        let (year, month, day) = (n(0, 4)?, n(5, 7)?, n(8, 10)?);
        let (hour, minute, second) = (n(11, 13)?, n(14, 16)?, n(17, 19)?);
        if !(1..=12).contains(&month) || day == 0 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_from_civil(i64::from(year), month, day);
        if civil_from_days(days) != (i64::from(year), month, day) {
            return None;
        }
        let mut rest = s.get(19..)?;
        let mut nanos: i128 = 0;
        if let Some(fraction) = rest.strip_prefix('.') {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            nanos = format!("{:0<9}", &fraction[..digits.min(9)]).parse().ok()?;
            rest = &fraction[digits..];
        }
        let offset = match rest.as_bytes() {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let part = |text: &str, below: i32| {
                    let digits = text.bytes().all(|b| b.is_ascii_digit());
                    digits.then(|| text.parse::<i32>().ok()).flatten().filter(|n| *n < below)
                };
                let minutes = part(rest.get(1..3)?, 24)? * 60 + part(rest.get(4..6)?, 60)?;
                if *sign == b'-' { -minutes } else { minutes }
            }
            _ => return None,
        };
        let seconds = i128::from(hour * 3600 + minute * 60 + second);
        Some(Self { local: i128::from(days) * DAY + seconds * 1_000_000_000 + nanos, offset })
    }

    fn plus(self, nanos: i64) -> Self {
        Self { local: self.local + i128::from(nanos), ..self }
    }

    fn date(self) -> (i64, u32, u32) {
        civil_from_days(i64::try_from(self.local.div_euclid(DAY)).unwrap_or_default())
    }

    /// Returns hour, minute and second.
    fn time(self) -> (i128, i128, i128) {
        let seconds = self.local.rem_euclid(DAY) / 1_000_000_000;
        (seconds / 3600, seconds / 60 % 60, seconds % 60)
    }

    fn zone(self, colon: bool) -> String {
        let (sign, minutes) = if self.offset < 0 { ('-', -self.offset) } else { ('+', self.offset) };
        format!("{sign}{:02}{}{:02}", minutes / 60, if colon { ":" } else { "" }, minutes % 60)
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time());
        let zone = if self.offset == 0 { "Z".to_owned() } else { self.zone(true) };
        let (before, year) = (if year < 0 { "-" } else { "" }, year.unsigned_abs());
        write!(f, "{before}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}")
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Let years begin in March, so that the leap day is the last day of the year.
    let (month, day) = (i64::from(month), i64::from(day));
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or_default(), u32::try_from(day).unwrap_or_default())
}

fn formatdate(pattern: &str, stamp: Stamp) -> Result<String> {
    let ((year, month, day), (hour, minute, second)) = (stamp.date(), stamp.time());
    let weekday = DAYS[usize::try_from(stamp.local.div_euclid(DAY).rem_euclid(7)).unwrap_or_default()];
    let month_name = MONTHS[(month as usize).saturating_sub(1).min(11)];
    let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("''") {
            out.push('\'');
            rest = after;
            continue;
        }
        if c == '\'' {
            let mut chars = rest[1..].char_indices().peekable();
            let mut end = None;
            while let Some((i, c)) = chars.next() {
                if c != '\'' {
                    out.push(c);
                } else if chars.peek().is_some_and(|(_, n)| *n == '\'') {
                    chars.next();
                    out.push('\'');
                } else {
                    end = Some(i + 2);
                    break;
                }
            }
            // At the end of the format, a doubled quote may be both a literal quote and the closing one.
            let closed = end.or_else(|| rest.ends_with("''").then_some(rest.len()));
            rest = &rest[closed.ok_or("unterminated literal '")?..];
            continue;
        }
        if !c.is_ascii_alphabetic() {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let length = rest.chars().take_while(|x| *x == c).count();
        let verb = &rest[..length];
        rest = &rest[length..];
        let written = match verb {
            "YYYY" => write!(out, "{year:04}"),
            "YY" => write!(out, "{:02}", year.rem_euclid(100)),
            "MMMM" => write!(out, "{month_name}"),
            "MMM" => write!(out, "{}", &month_name[..3]),
            "MM" => write!(out, "{month:02}"),
            "M" => write!(out, "{month}"),
            "DD" => write!(out, "{day:02}"),
            "D" => write!(out, "{day}"),
            "EEEE" => write!(out, "{weekday}"),
            "EEE" => write!(out, "{}", &weekday[..3]),
            "hh" => write!(out, "{hour:02}"),
            "h" => write!(out, "{hour}"),
            "HH" => write!(out, "{twelve:02}"),
            "H" => write!(out, "{twelve}"),
            "AA" => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            "aa" => write!(out, "{}", if hour < 12 { "am" } else { "pm" }),
            "mm" => write!(out, "{minute:02}"),
            "m" => write!(out, "{minute}"),
            "ss" => write!(out, "{second:02}"),
            "s" => write!(out, "{second}"),
            "ZZZZZ" => write!(out, "{}", stamp.zone(true)),
            "ZZZZ" => write!(out, "{}", stamp.zone(false)),
            "ZZZ" if stamp.offset == 0 => write!(out, "UTC"),
            "ZZZ" => write!(out, "{}", stamp.zone(false)),
            "Z" if stamp.offset == 0 => write!(out, "Z"),
            "Z" => write!(out, "{}", stamp.zone(true)),
            other => return Err(format!("invalid date format verb {other:?}").into()),
        };
        written.map_err(|e| e.to_string())?;
    }
    Ok(out)
}

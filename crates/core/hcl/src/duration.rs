//! Parses durations such as `1h30m` and sizes such as `10GiB`.

/// Parses a duration in Go's notation and returns nanoseconds: a sign, then numbers with units, without spaces.
///
/// # Errors
/// A sentence in Nomad's words.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(rest);
        let mut end = whole;
        let mut fraction = "";
        if rest[whole..].starts_with('.') {
            let length = digits(&rest[whole + 1..]);
            fraction = &rest[whole + 1..whole + 1 + length];
            end = whole + 1 + length;
        }
        if whole == 0 && fraction.is_empty() {
            return Err(invalid());
        }
        let number: i128 = if whole == 0 { 0 } else { rest[..whole].parse().map_err(|_| invalid())? };
        rest = &rest[end..];
        let unit_length = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(unit_length);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            _ => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        total = number.checked_mul(scale).and_then(|n| total.checked_add(n)).ok_or_else(invalid)?;
        let fraction = &fraction[..fraction.len().min(18)];
        if let (Ok(part), Ok(length)) = (fraction.parse::<i128>(), u32::try_from(fraction.len())) {
            total += part * scale / 10_i128.pow(length);
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// Parses a size and returns bytes: `10GiB` is binary, `20G` and `20GB` are decimal, a bare number is bytes.
///
/// # Errors
/// A sentence that names the problem.
pub fn parse_size(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let number = number.replace(',', "");
    let wrong = || format!("{text:?} is not a size; write a number and a unit such as \"10GiB\" or \"20GB\"");
    if number.is_empty() {
        return Err(wrong());
    }
    let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "p" | "pb" => 1e15,
        "e" | "eb" => 1e18,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1024.0 * 1024.0,
        "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "ti" | "tib" => 1024.0_f64.powi(4),
        "pi" | "pib" => 1024.0_f64.powi(5),
        "ei" | "eib" => 1024.0_f64.powi(6),
        _ => return Err(wrong()),
    };
    let number: crate::value::Number = number.parse().map_err(|_| wrong())?;
    let scale = crate::value::Number::from_f64(scale).ok_or_else(wrong)?;
    number
        .times(&scale)
        .and_then(|n| n.truncate().to_i64())
        .ok_or_else(|| format!("{text:?} is too large for a size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("1h30m"), Ok(5_400_000_000_000));
        assert_eq!(parse_duration("1.000000001s"), Ok(1_000_000_001));
        assert_eq!(parse_duration("-1ns"), Ok(-1));
        assert_eq!(parse_duration("1.h"), Ok(3_600_000_000_000));
        assert_eq!(parse_duration("3μs"), Ok(3000));
        assert_eq!(parse_duration("2562047h"), Ok(9_223_369_200_000_000_000));
        let error = parse_duration("10 minutes").unwrap_err();
        assert_eq!(error, "time: unknown unit \" minutes\" in duration \"10 minutes\"");
        for bad in ["", "1", "s", "1x", "99999999h", "."] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("2GiB"), Ok(2_147_483_648));
        assert_eq!(parse_size("20G"), Ok(20_000_000_000));
        assert_eq!(parse_size("1.5 MB"), Ok(1_500_000));
        assert_eq!(parse_size("512"), Ok(512));
        assert!(parse_size("ten").is_err());
        assert!(parse_size("1XB").is_err());
    }
}

//! Converts numbers from and to decimal digits.

use super::{COUNTED, NotANumber, Number, RANGE, Repr, WRITTEN};
use num_bigint::{BigInt, BigUint};
use std::fmt;
use std::str::FromStr;

/// The largest power of ten in a parsed number.
const POWERS: i64 = 1000;
/// The maximum number of digits of a parsed number, because parsing takes quadratic time.
const DIGITS: usize = 8000;

/// Splits a text into its sign and the rest.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

impl Number {
    /// Parses a string that is used as a number: digits with a power of ten or, after a `p`, of two, or an infinity.
    pub(crate) fn from_text(text: &str) -> Result<Self, NotANumber> {
        let (negative, digits) = signed(text);
        if matches!(digits, "Inf" | "inf") {
            return Ok(Self::infinite(negative));
        }
        let Some((digits, power)) = digits.split_once(['p', 'P']) else { return text.parse() };
        if digits.contains(['e', 'E', '+', '-']) {
            return Err(NotANumber);
        }
        let power = power.parse::<i64>().ok().filter(|p| p.abs() <= RANGE).ok_or(NotANumber)?;
        let (mantissa, exponent) = digits.parse::<Self>()?.parts();
        let mantissa = if negative { -mantissa } else { mantissa };
        Self::rounded(mantissa, exponent + power, false, WRITTEN).ok_or(NotANumber)
    }
}

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        let (negative, digits) = signed(text);
        if (1..=18).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) {
            let n = digits.bytes().fold(0_i64, |n, b| n * 10 + i64::from(b - b'0'));
            let n = Self { repr: Repr::Small(n), precision: WRITTEN };
            return Ok(if negative { n.negate() } else { n });
        }
        let (digits, exponent) = match digits.find(['e', 'E']) {
            Some(i) => (&digits[..i], digits[i + 1..].parse::<i64>().map_err(|_| NotANumber)?),
            None => (digits, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty()
            || whole.len() + fraction.len() > DIGITS
            || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
        {
            return Err(NotANumber);
        }
        let all = format!("{whole}{fraction}");
        let mantissa = BigUint::parse_bytes(all.as_bytes(), 10).ok_or(NotANumber)?;
        if mantissa == BigUint::ZERO {
            return Ok(Self::zero(negative, WRITTEN));
        }
        let fraction = i64::try_from(fraction.len()).map_err(|_| NotANumber)?;
        let power = exponent.checked_sub(fraction).ok_or(NotANumber)?;
        if exponent.abs() > POWERS {
            return Err(NotANumber);
        }
        let ten = u32::try_from(power.unsigned_abs()).map_err(|_| NotANumber)?;
        let ten = BigUint::from(10_u32).pow(ten);
        let (mantissa, shift, more) = if power >= 0 {
            (mantissa * ten, 0, false)
        } else {
            let bits = |n: &BigUint| i64::try_from(n.bits()).unwrap_or_default();
            let shift = (i64::from(WRITTEN) + 2 + bits(&ten) - bits(&mantissa)).max(0);
            let shifted = mantissa << shift;
            let rest = &shifted % &ten != BigUint::ZERO;
            (shifted / ten, shift, rest)
        };
        let mantissa = BigInt::from(mantissa);
        let mantissa = if negative { -mantissa } else { mantissa };
        Self::rounded(mantissa, -shift, more, WRITTEN).ok_or(NotANumber)
    }
}

/// Writes plain digits without an exponent: the fewest that distinguish the number from its neighbours.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Small(n) if self.precision >= COUNTED || n.unsigned_abs() >> self.precision == 0 => {
                write!(f, "{n}")
            }
            Repr::MinusZero => f.write_str("-0"),
            Repr::Infinite { negative } => f.write_str(if *negative { "-Inf" } else { "+Inf" }),
            Repr::Small(_) | Repr::Big(_) => {
                let (digits, point) = self.shortest();
                f.write_str(&plain(self.is_negative(), &digits, point, 0))
            }
        }
    }
}

impl Number {
    /// Returns the digits that [`fmt::Display`] writes, without the sign, and the number of digits before the point.
    fn shortest(&self) -> (String, i64) {
        let (mantissa, exponent) = self.parts();
        let (_, magnitude) = mantissa.into_parts();
        if magnitude == BigUint::ZERO {
            return ("0".to_owned(), 1);
        }
        // Drop trailing zeros, so that the bits are those of the mantissa.
        let zeros = magnitude.trailing_zeros().unwrap_or_default();
        let (magnitude, exponent) = (magnitude >> zeros, exponent + i64::try_from(zeros).unwrap_or_default());
        shortest(&magnitude, exponent, u64::from(self.precision).max(magnitude.bits()))
    }

    /// Returns the first digits, rounded and without the sign, and the number of digits before the point.
    fn digits(&self, count: impl Fn(i64) -> i64) -> (String, i64) {
        let (mantissa, exponent) = self.parts();
        let (_, magnitude) = mantissa.into_parts();
        if magnitude == BigUint::ZERO {
            return ("0".to_owned(), 1);
        }
        let (digits, point) = decimal(&magnitude, exponent);
        match usize::try_from(count(point)) {
            Ok(count) => cut(digits, point, count, true, true),
            Err(_) => ("0".to_owned(), 1),
        }
    }

    /// Formats with this many digits after the point (`%.2f`).
    #[must_use]
    pub(crate) fn fixed(&self, places: usize) -> String {
        let behind = i64::try_from(places).unwrap_or(i64::MAX / 2);
        let (digits, point) = self.digits(|point| point + behind);
        plain(self.is_negative(), &digits, point, places)
    }

    /// Formats with a power of ten and this many digits after the point (`%.2e`).
    #[must_use]
    pub(crate) fn scientific(&self, places: usize) -> String {
        let count = i64::try_from(places).unwrap_or(i64::MAX / 2) + 1;
        let (digits, point) = self.digits(|_| count);
        powered(self.is_negative(), &format!("{digits:0<width$}", width = places + 1), point)
    }

    /// Formats in the shorter of both notations (`%g`); without a precision, with as many digits as necessary.
    #[must_use]
    pub(crate) fn general(&self, precision: Option<usize>) -> String {
        let (digits, point) = match precision {
            Some(count) => self.digits(|_| i64::try_from(count.max(1)).unwrap_or(i64::MAX)),
            None => self.shortest(),
        };
        let digits = match digits.trim_end_matches('0') {
            "" => "0",
            trimmed => trimmed,
        };
        let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let limit = match precision.map(|count| i64::try_from(count.max(1)).unwrap_or(i64::MAX)) {
            Some(count) if count > length && length >= point => length,
            Some(count) => count,
            None => 6,
        };
        if point - 1 < -4 || point > limit {
            powered(self.is_negative(), digits, point)
        } else {
            plain(self.is_negative(), digits, point, 0)
        }
    }
}

/// Formats digits with a point, and at least `places` digits after it.
fn plain(negative: bool, digits: &str, point: i64, places: usize) -> String {
    let sign = if negative { "-" } else { "" };
    let (whole, fraction) = match usize::try_from(point) {
        Ok(0) => ("0".to_owned(), digits.to_owned()),
        Ok(before) if digits.len() <= before => (format!("{digits:0<before$}"), String::new()),
        Ok(before) => (digits[..before].to_owned(), digits[before..].to_owned()),
        Err(_) => {
            let zeros = usize::try_from(point.unsigned_abs()).unwrap_or_default();
            ("0".to_owned(), format!("{}{digits}", "0".repeat(zeros)))
        }
    };
    let fraction = format!("{fraction:0<places$}");
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Formats digits with an exponent: `1.5e+07`.
fn powered(negative: bool, digits: &str, point: i64) -> String {
    let sign = if negative { "-" } else { "" };
    let power = if digits.bytes().all(|b| b == b'0') { 0 } else { point - 1 };
    let (first, rest) = digits.split_at(1);
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{rest}e{}{:02}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
}

/// Returns the digits of `mantissa * 2^exponent` without trailing zeros, and the number of digits before the point.
fn decimal(mantissa: &BigUint, exponent: i64) -> (Vec<u8>, i64) {
    let (whole, behind) = match u32::try_from(exponent) {
        Ok(up) => (mantissa << up, 0),
        Err(_) => {
            let down = u32::try_from(exponent.unsigned_abs()).unwrap_or(u32::MAX);
            (mantissa * BigUint::from(5_u32).pow(down), i64::from(down))
        }
    };
    let mut digits = whole.to_string().into_bytes();
    let point = i64::try_from(digits.len()).unwrap_or(i64::MAX) - behind;
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    (digits, point)
}

/// Returns the shortest digits that round to this number at `precision` bits, and the number of digits before the
/// point (negative: zeros after it).
fn shortest(mantissa: &BigUint, exponent: i64, precision: u64) -> (String, i64) {
    let (digits, point) = decimal(mantissa, exponent);
    // Use one bit more than the precision, so that the midpoints to the neighbours are one step away.
    let shift = precision + 1 - mantissa.bits();
    let wide = mantissa << shift;
    let exponent = exponent - i64::try_from(shift).unwrap_or_default();
    let (low, _) = decimal(&(&wide - 1_u32), exponent);
    let (high, _) = decimal(&(&wide + 1_u32), exponent);
    let inclusive = !wide.bit(1);
    let at = |digits: &[u8], i: usize| digits.get(i).copied().unwrap_or(b'0');
    for (i, m) in digits.iter().copied().enumerate() {
        let (l, u) = (at(&low, i), at(&high, i));
        let down = l != m || inclusive && i + 1 == low.len();
        let up = m != u && (inclusive || m + 1 < u || i + 1 < high.len());
        if down || up {
            return cut(digits, point, i + 1, down, up);
        }
    }
    (text(digits), point)
}

fn text(digits: Vec<u8>) -> String {
    digits.into_iter().map(char::from).collect()
}

/// Cuts to the first `count` digits and rounds: down, up, or to the nearer side if both are allowed.
fn cut(mut digits: Vec<u8>, mut point: i64, count: usize, down: bool, up: bool) -> (String, i64) {
    if count >= digits.len() {
        return (text(digits), point);
    }
    let half = digits[count] == b'5' && count + 1 == digits.len();
    let nearer_up = if half { count > 0 && digits[count - 1] % 2 == 1 } else { digits[count] >= b'5' };
    digits.truncate(count);
    if if down && up { nearer_up } else { up } {
        while digits.last() == Some(&b'9') {
            digits.pop();
        }
        match digits.last_mut() {
            Some(last) => *last += 1,
            None => {
                digits.push(b'1');
                point += 1;
            }
        }
    }
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    (text(digits), point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        for (text, want) in [
            ("1e2", "100"),
            ("0.1", "0.1"),
            ("-12.50", "-12.5"),
            ("1e-7", "0.0000001"),
            ("1e30", "1000000000000000000000000000000"),
            ("1e200", &format!("1{}", "0".repeat(200))),
            ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
            ("+7", "7"),
            (".5", "0.5"),
            ("007", "7"),
            ("0.0", "0"),
        ] {
            assert_eq!(text.parse::<Number>().unwrap().to_string(), want, "{text}");
        }
        for (text, want) in [
            ("-0", "-0"),
            ("-0.0", "-0"),
            ("Inf", "+Inf"),
            ("-inf", "-Inf"),
            ("1p3", "8"),
            ("-1p-3", "-0.125"),
            ("5.", "5"),
            ("1E+05", "100000"),
        ] {
            assert_eq!(Number::from_text(text).unwrap().to_string(), want, "{text}");
        }
        for bad in ["infinity", "NaN", "1p", "1e5p3", "1_000", "0x1F", " 1", "1 ", "\u{663}", "1p-+3"] {
            assert!(Number::from_text(bad).is_err(), "{bad}");
        }
        for bad in ["", "-", ".", "1e", "1.2.3", "0x1", "1_000", "1e1001", "inf", "nan", &"1".repeat(9000)] {
            assert!(bad.parse::<Number>().is_err(), "{bad}");
        }
        let n = |text: &str| text.parse::<Number>().unwrap();
        assert_eq!(n("0.1").fixed(20), "0.10000000000000000000");
        assert_eq!(
            (n("2.5").fixed(0), n("3.5").fixed(0), n("-0.04").fixed(1)),
            ("2".into(), "4".into(), "-0.0".into())
        );
        assert_eq!((n("0").fixed(2), n("1234.5").fixed(2)), ("0.00".into(), "1234.50".into()));
        assert_eq!((n("123456").scientific(2), n("0").scientific(1)), ("1.23e+05".into(), "0.0e+00".into()));
        assert_eq!(
            (n("0.00012").general(None), n("0.000012").general(None)),
            ("0.00012".into(), "1.2e-05".into())
        );
        assert_eq!(
            (n("100000").general(None), n("1234567").general(None)),
            ("100000".into(), "1.234567e+06".into())
        );
        assert_eq!(
            (n("3.14159").general(Some(3)), n("1000000").general(Some(9))),
            ("3.14".into(), "1000000".into())
        );
        assert_eq!(Number::from_f64(0.1).unwrap().to_string(), "0.1");
        assert_eq!(Number::from_f64(1e23).unwrap().to_string(), "100000000000000000000000".to_owned());
        assert_eq!(Number::from_f64(2_f64.ln()).unwrap().to_string(), 2_f64.ln().to_string());
    }
}

//! Decimal numbers: a whole mantissa of up to 38 digits and a power of ten. Every 64-bit integer and
//! every sum, difference and product of such that fits 38 digits is exact; what does not fit is rounded.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Powers of ten beyond this are refused by the parser, so that printing a number stays cheap.
const EXPONENT_LIMIT: i32 = 4000;

/// A decimal number, `mantissa * 10^exponent`, without trailing zeros in the mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Number {
    mantissa: i128,
    exponent: i32,
}

/// The text is no number, or its power of ten is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a number")]
pub struct NotANumber;

impl Number {
    /// Zero.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0 };
    /// One.
    pub const ONE: Self = Self { mantissa: 1, exponent: 0 };

    fn new(mut mantissa: i128, mut exponent: i32) -> Self {
        if mantissa == 0 {
            return Self::ZERO;
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        Self { mantissa, exponent }
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether it has no fraction.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.exponent >= 0
    }

    /// As a whole number of 128 bits, if it is one.
    #[must_use]
    pub fn to_i128(self) -> Option<i128> {
        let power = 10_i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        self.mantissa.checked_mul(power)
    }

    /// As a whole number of 64 bits, if it is one.
    #[must_use]
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.to_i128()?).ok()
    }

    /// The nearest floating point number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        format!("{}e{}", self.mantissa, self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// From a floating point number, by its shortest decimal form; `None` for infinities and NaN.
    #[must_use]
    pub fn from_f64(f: f64) -> Option<Self> {
        if f.is_finite() { format!("{f:e}").parse().ok() } else { None }
    }

    /// As JSON: an integer where it fits 64 bits.
    #[must_use]
    pub fn to_json(self) -> serde_json::Value {
        match self.to_i64() {
            Some(n) => serde_json::Value::from(n),
            None => serde_json::Value::from(self.to_f64()),
        }
    }

    /// Both with the same exponent; the smaller one loses digits when there is no room.
    fn align(a: Self, b: Self) -> (i128, i128, i32) {
        let (mut high, mut low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
        while high.exponent > low.exponent {
            if let Some(m) = high.mantissa.checked_mul(10).filter(|m| m.unsigned_abs() < u128::MAX / 8) {
                high.mantissa = m;
                high.exponent -= 1;
            } else {
                let gap = high.exponent - low.exponent;
                low.mantissa = shift_down(low.mantissa, gap);
                low.exponent = high.exponent;
            }
        }
        if a.exponent >= b.exponent {
            (high.mantissa, low.mantissa, high.exponent)
        } else {
            (low.mantissa, high.mantissa, high.exponent)
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (a, b, exponent) = Self::align(self, other);
        match a.checked_add(b) {
            Some(m) => Self::new(m, exponent),
            None => Self::new(shift_down(a, 1) + shift_down(b, 1), exponent + 1),
        }
    }

    /// The negative.
    #[must_use]
    pub fn negate(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(other.negate())
    }

    /// The product.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let (mut a, mut b) = (self.mantissa, other.mantissa);
        let mut exponent = self.exponent.saturating_add(other.exponent);
        loop {
            if let Some(m) = a.checked_mul(b) {
                return Self::new(m, exponent);
            }
            if a.unsigned_abs() > b.unsigned_abs() {
                a = shift_down(a, 1);
            } else {
                b = shift_down(b, 1);
            }
            exponent += 1;
        }
    }

    /// The quotient to 36 digits; `None` when dividing by zero.
    #[must_use]
    pub fn over(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let negative = self.is_negative() != other.is_negative();
        let mut divisor = other.mantissa.unsigned_abs();
        let mut exponent = self.exponent - other.exponent;
        // Keep ten times a remainder within 128 bits.
        while divisor > u128::MAX / 100 {
            divisor /= 10;
            exponent -= 1;
        }
        let dividend = self.mantissa.unsigned_abs();
        let (mut quotient, mut rest) = (dividend / divisor, dividend % divisor);
        while rest != 0 && quotient < 10_u128.pow(36) {
            rest *= 10;
            quotient = quotient * 10 + rest / divisor;
            rest %= divisor;
            exponent -= 1;
        }
        if rest * 2 >= divisor && rest != 0 {
            quotient += 1;
        }
        let quotient = i128::try_from(quotient).unwrap_or(i128::MAX);
        Some(Self::new(if negative { -quotient } else { quotient }, exponent))
    }

    /// What is left of a division, with the sign of the first; `None` when dividing by zero.
    #[must_use]
    pub fn remainder(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let (a, b, exponent) = Self::align(self, other);
        if b == 0 {
            return Some(Self::ZERO);
        }
        Some(Self::new(a % b, exponent))
    }

    /// Without its fraction.
    #[must_use]
    pub fn truncate(self) -> Self {
        if self.is_whole() { self } else { Self::new(cut_down(self.mantissa, -self.exponent), 0) }
    }

    /// The whole number at or below.
    #[must_use]
    pub fn floor(self) -> Self {
        let cut = self.truncate();
        if cut > self { cut.minus(Self::ONE) } else { cut }
    }

    /// The whole number at or above.
    #[must_use]
    pub fn ceil(self) -> Self {
        let cut = self.truncate();
        if cut < self { cut.plus(Self::ONE) } else { cut }
    }

    /// Without its sign.
    #[must_use]
    pub fn abs(self) -> Self {
        Self { mantissa: self.mantissa.abs(), ..self }
    }
}

/// Divides by a power of ten, cutting.
fn cut_down(mantissa: i128, digits: i32) -> i128 {
    u32::try_from(digits).ok().and_then(|d| 10_i128.checked_pow(d)).map_or(0, |p| mantissa / p)
}

/// Divides by a power of ten, rounding half away from zero.
fn shift_down(mantissa: i128, digits: i32) -> i128 {
    let Some(power) = u32::try_from(digits).ok().and_then(|d| 10_i128.checked_pow(d)) else { return 0 };
    let (whole, rest) = (mantissa / power, mantissa % power);
    if rest.abs() >= power / 2 && rest != 0 { whole + mantissa.signum() } else { whole }
}

impl From<i64> for Number {
    fn from(n: i64) -> Self {
        Self::new(i128::from(n), 0)
    }
}

impl From<i128> for Number {
    fn from(n: i128) -> Self {
        Self::new(n, 0)
    }
}

impl From<usize> for Number {
    fn from(n: usize) -> Self {
        Self::new(i128::try_from(n).unwrap_or(i128::MAX), 0)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs.is_ne() || self.mantissa == 0 {
            return signs;
        }
        // Compare the places of the leading digits first: aligning may lose digits.
        let lead = |n: &Self| i64::from(n.mantissa.unsigned_abs().ilog10()) + i64::from(n.exponent);
        let by_lead = lead(self).cmp(&lead(other));
        if by_lead.is_ne() {
            return if self.is_negative() { by_lead.reverse() } else { by_lead };
        }
        let (a, b, _) = Self::align(*self, *other);
        a.cmp(&b)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Number {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, NotANumber> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, exponent) = match digits.find(['e', 'E']) {
            Some(i) => (&digits[..i], digits[i + 1..].parse::<i32>().map_err(|_| NotANumber)?),
            None => (digits, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty()
            || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
        {
            return Err(NotANumber);
        }
        let mut mantissa: i128 = 0;
        let mut exponent = i64::from(exponent) - i64::try_from(fraction.len()).map_err(|_| NotANumber)?;
        let mut full = false;
        for digit in whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0')) {
            if full {
                exponent += 1;
                continue;
            }
            match mantissa.checked_mul(10).and_then(|m| m.checked_add(digit)) {
                Some(m) => mantissa = m,
                None => {
                    full = true;
                    exponent += 1;
                    if digit >= 5 {
                        mantissa = mantissa.saturating_add(1);
                    }
                }
            }
        }
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        let exponent =
            i32::try_from(exponent).ok().filter(|e| e.abs() <= EXPONENT_LIMIT).ok_or(NotANumber)?;
        Ok(Self::new(if negative { -mantissa } else { mantissa }, exponent))
    }
}

/// Plain digits, never with an exponent.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let digits = self.mantissa.unsigned_abs().to_string();
        if let Ok(zeros) = usize::try_from(self.exponent) {
            return write!(f, "{sign}{digits}{}", "0".repeat(zeros));
        }
        let places = usize::try_from(self.exponent.unsigned_abs()).unwrap_or(usize::MAX);
        if digits.len() > places {
            let (whole, fraction) = digits.split_at(digits.len() - places);
            write!(f, "{sign}{whole}.{fraction}")
        } else {
            write!(f, "{sign}0.{}{digits}", "0".repeat(places - digits.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn n(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn arithmetic() {
        assert_eq!(n("0.1").plus(n("0.2")).to_string(), "0.3");
        assert_eq!(n("9223372036854775807").plus(Number::ONE).to_string(), "9223372036854775808");
        assert_eq!(n("-9").remainder(n("4")).unwrap().to_string(), "-1");
        assert_eq!(n("9.5").remainder(n("4")).unwrap().to_string(), "1.5");
        assert_eq!(n("-1").over(n("8")).unwrap().to_string(), "-0.125");
        assert_eq!(n("2").over(n("3")).unwrap().to_f64(), 2.0 / 3.0);
        assert_eq!(n("1").over(Number::ZERO), None);
        assert_eq!(n("-0.5").floor().to_string(), "-1");
        assert_eq!(n("-0.5").ceil().to_string(), "0");
        assert_eq!(n("1e2").to_string(), "100");
        assert_eq!(n("5e-324").to_f64(), 5e-324);
        assert!(n("1e100") > n("1e99"));
        assert!(n("-1e100") < n("1"));
        assert!("1e999999999".parse::<Number>().is_err());
        assert!("".parse::<Number>().is_err());
    }

    proptest! {
        #[test]
        fn whole_numbers_are_exact(a: i64, b: i64) {
            let (x, y) = (Number::from(a), Number::from(b));
            prop_assert_eq!(x.plus(y).to_i128(), Some(i128::from(a) + i128::from(b)));
            prop_assert_eq!(x.times(y).to_i128(), Some(i128::from(a) * i128::from(b)));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.to_string(), a.to_string());
            prop_assert_eq!(x.to_i64(), Some(a));
        }

        #[test]
        fn floats_survive(f: f64) {
            if let Some(x) = Number::from_f64(f) {
                prop_assert_eq!(x.to_f64(), f);
                prop_assert_eq!(x.to_string().parse::<Number>(), Ok(x));
            }
        }
    }
}

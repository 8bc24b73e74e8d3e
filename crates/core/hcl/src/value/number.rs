//! Numbers with Nomad's arithmetic: binary floating point with a mantissa of up to 512 bits. Integers of 64 bits are
//! exact, and so are their sums and products.

mod text;

use num_bigint::{BigInt, BigUint, Sign};
use std::cmp::Ordering;
use std::sync::Arc;

/// The bits of the mantissa of a parsed number.
const WRITTEN: u32 = 512;
/// The bits of the mantissa of a number that comes from an integer.
const COUNTED: u32 = 64;
/// The bits of the mantissa of a number that comes from floating point.
const FLOAT: u32 = 53;
/// The maximum number of binary digits before or after the point. The limit keeps arithmetic and printing cheap.
const RANGE: i64 = 4_000;

/// A number or an infinity. As in Nomad, division by zero gives an infinity.
///
/// Two numbers are equal if they have the same value, regardless of precision and of the sign of zero.
#[derive(Clone, Debug)]
pub struct Number {
    repr: Repr,
    /// The minimum precision, in bits of the mantissa, of results computed with this number.
    precision: u32,
}

/// The representation. Whole numbers of 64 bits are always `Small`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    Small(i64),
    Big(Arc<Big>),
    /// A negative zero, which prints with its sign.
    MinusZero,
    Infinite {
        negative: bool,
    },
}

/// `mantissa * 2^exponent`, with an odd mantissa.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Big {
    mantissa: BigInt,
    exponent: i64,
}

/// The error for a text that is no number, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number")]
pub struct NotANumber;

impl Number {
    /// The number 0.
    pub const ZERO: Self = Self { repr: Repr::Small(0), precision: COUNTED };
    /// The number 1.
    pub const ONE: Self = Self { repr: Repr::Small(1), precision: COUNTED };

    /// Returns `mantissa * 2^exponent`, plus a fraction of the last bit if `more`, rounded to `precision` bits, half
    /// to even. Returns `None` if it is out of range.
    fn rounded(mantissa: BigInt, exponent: i64, more: bool, precision: u32) -> Option<Self> {
        let (sign, mut magnitude) = mantissa.into_parts();
        let mut exponent = exponent;
        let bits = magnitude.bits();
        if bits > u64::from(precision) {
            let drop = bits - u64::from(precision);
            let half = magnitude.bit(drop - 1);
            let beyond = more || magnitude.trailing_zeros().is_some_and(|zeros| zeros < drop - 1);
            magnitude >>= drop;
            exponent += i64::try_from(drop).ok()?;
            if half && (beyond || magnitude.bit(0)) {
                magnitude += 1_u32;
            }
        }
        let Some(zeros) = magnitude.trailing_zeros() else {
            return Some(Self { precision, ..Self::ZERO });
        };
        magnitude >>= zeros;
        exponent += i64::try_from(zeros).ok()?;
        let top = i64::try_from(magnitude.bits()).ok()? + exponent;
        if top > RANGE || exponent < -RANGE {
            return None;
        }
        let mantissa = BigInt::from_biguint(sign, magnitude);
        if (0..=64).contains(&exponent)
            && top <= 64
            && let Ok(small) = i64::try_from(&mantissa << exponent)
        {
            return Some(Self { repr: Repr::Small(small), precision });
        }
        Some(Self { repr: Repr::Big(Arc::new(Big { mantissa, exponent })), precision })
    }

    /// Returns an infinity with this sign.
    fn infinite(negative: bool) -> Self {
        Self { repr: Repr::Infinite { negative }, precision: COUNTED }
    }

    fn with_precision(self, precision: u32) -> Self {
        Self { precision, ..self }
    }

    /// Returns a zero with this sign.
    fn zero(negative: bool, precision: u32) -> Self {
        Self { repr: if negative { Repr::MinusZero } else { Repr::Small(0) }, precision }
    }

    /// Returns mantissa and exponent. Infinities give zeros, and a negative zero loses its sign.
    fn parts(&self) -> (BigInt, i64) {
        match &self.repr {
            Repr::Small(n) => (BigInt::from(*n), 0),
            Repr::Big(big) => (big.mantissa.clone(), big.exponent),
            Repr::MinusZero | Repr::Infinite { .. } => (BigInt::ZERO, 0),
        }
    }

    /// Returns the approximate number of binary digits that printing handles; 0 for whole numbers of 64 bits.
    pub(crate) fn digits_to_print(&self) -> u64 {
        match &self.repr {
            Repr::Big(big) => big.mantissa.bits() + big.exponent.unsigned_abs(),
            _ => 0,
        }
    }

    /// Returns whether the number is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        matches!(self.repr, Repr::Small(0) | Repr::MinusZero)
    }

    /// Returns whether the number is an infinity.
    #[must_use]
    pub fn is_infinite(&self) -> bool {
        matches!(self.repr, Repr::Infinite { .. })
    }

    /// Returns whether the number is negative, including negative zero.
    #[must_use]
    pub fn has_sign(&self) -> bool {
        match &self.repr {
            Repr::Small(n) => *n < 0,
            Repr::Big(big) => big.mantissa.sign() == Sign::Minus,
            Repr::MinusZero => true,
            Repr::Infinite { negative } => *negative,
        }
    }

    /// Returns whether the number is below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.has_sign() && !self.is_zero()
    }

    /// Returns whether the number has no fraction.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.repr {
            Repr::Small(_) | Repr::MinusZero => true,
            Repr::Big(big) => big.exponent >= 0,
            Repr::Infinite { .. } => false,
        }
    }

    /// Returns the number as an integer, or `None` if it has a fraction.
    #[must_use]
    pub(crate) fn to_whole(&self) -> Option<BigInt> {
        let (mantissa, exponent) = self.parts();
        self.is_whole().then(|| mantissa << exponent)
    }

    /// Returns the number as an integer of 128 bits, if it is one.
    #[must_use]
    pub fn to_i128(&self) -> Option<i128> {
        match &self.repr {
            Repr::Small(n) => Some(i128::from(*n)),
            _ => i128::try_from(self.to_whole()?).ok(),
        }
    }

    /// Returns the number as an integer of 64 bits, if it is one.
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        match &self.repr {
            Repr::Small(n) => Some(*n),
            Repr::MinusZero => Some(0),
            Repr::Big(_) | Repr::Infinite { .. } => None,
        }
    }

    /// Returns an unsigned integer of 64 bits. Truncates a fraction if the number is at least 1 and has at most 64
    /// significant bits, like `Uint64` of Go's `big.Float`, which Nomad uses.
    #[must_use]
    pub fn to_unsigned(&self) -> Option<u64> {
        match &self.repr {
            Repr::Big(big) if big.exponent < 0 => {
                let cut = self.truncate();
                (big.mantissa.bits() <= 64 && !cut.is_zero()).then(|| cut.to_unsigned()).flatten()
            }
            _ => u64::try_from(self.to_whole()?).ok(),
        }
    }

    /// Returns the number truncated and clamped to 64 bits.
    #[must_use]
    pub fn saturated(&self) -> i64 {
        self.truncate().to_i64().unwrap_or(if self.has_sign() { i64::MIN } else { i64::MAX })
    }

    /// Returns the nearest floating point number.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        match self.repr {
            Repr::Infinite { negative: false } => return f64::INFINITY,
            Repr::Infinite { negative: true } => return f64::NEG_INFINITY,
            Repr::MinusZero => return -0.0,
            Repr::Small(_) | Repr::Big(_) => {}
        }
        let (mantissa, exponent) = self.parts();
        let bits = i64::try_from(mantissa.bits()).unwrap_or(RANGE);
        // Subnormal numbers have fewer bits.
        let room = (bits + exponent + 1074).clamp(0, 53);
        let Ok(room) = u32::try_from(room) else { return 0.0 };
        if room == 0 {
            // At most half of the smallest number; exactly half rounds to zero, which is even.
            let tiny = bits + exponent == -1074 && bits > 1;
            return if tiny {
                f64::from_bits(1).copysign(if self.is_negative() { -1.0 } else { 1.0 })
            } else {
                0.0
            };
        }
        let Some(cut) = Self::rounded(mantissa, exponent, false, room) else {
            return if exponent > 0 { f64::INFINITY } else { 0.0 };
        };
        let (mantissa, exponent) = cut.parts();
        let (sign, magnitude) = mantissa.into_parts();
        let whole = u64::try_from(magnitude).unwrap_or(u64::MAX);
        #[expect(clippy::cast_precision_loss, reason = "it was cut to 53 bits, or is a whole number")]
        let mut out = whole as f64;
        let mut left = exponent;
        // Apply the power in steps, because it alone may be out of range.
        while left != 0 {
            let step = i32::try_from(left.clamp(-1000, 1000)).unwrap_or_default();
            out *= 2_f64.powi(step);
            left -= i64::from(step);
        }
        if sign == Sign::Minus { -out } else { out }
    }

    /// Converts from floating point. Returns `None` for NaN.
    #[must_use]
    pub fn from_f64(f: f64) -> Option<Self> {
        if f.is_nan() {
            return None;
        }
        if f.is_infinite() {
            return Some(Self::infinite(f.is_sign_negative()));
        }
        if f == 0.0 {
            return Some(Self::zero(f.is_sign_negative(), FLOAT));
        }
        let bits = f.to_bits();
        let (fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) & 0x7ff);
        let (mantissa, exponent) = if biased == 0 {
            (fraction, -1074)
        } else {
            (fraction | 1 << 52, i64::try_from(biased).ok()? - 1075)
        };
        let mantissa = if f.is_sign_negative() { -BigInt::from(mantissa) } else { BigInt::from(mantissa) };
        Self::rounded(mantissa, exponent, false, FLOAT)
    }

    /// Converts from an integer of any size. Returns `None` if it is out of range.
    pub(crate) fn from_whole(n: BigInt) -> Option<Self> {
        let bits = u32::try_from(n.bits()).ok()?;
        Self::rounded(n, 0, false, bits.max(COUNTED))
    }

    /// Converts to JSON: an integer if it fits 64 bits, null for infinities, which JSON lacks.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self.to_i64() {
            Some(n) => serde_json::Value::from(n),
            None => serde_json::Value::from(self.to_f64()),
        }
    }

    /// Returns the sum; `None` if it is out of range, or undefined because infinities cancel out.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let precision = self.precision.max(other.precision);
        match (&self.repr, &other.repr) {
            (Repr::Infinite { negative: a }, Repr::Infinite { negative: b }) if a != b => return None,
            (Repr::Infinite { .. }, _) => return Some(self.clone()),
            (_, Repr::Infinite { .. }) => return Some(other.clone()),
            (Repr::MinusZero, Repr::MinusZero) => return Some(Self::zero(true, precision)),
            (Repr::Small(a), Repr::Small(b)) => {
                if let Some(sum) = a.checked_add(*b)
                    && (precision >= COUNTED || sum.unsigned_abs() >> precision == 0)
                {
                    return Some(Self { repr: Repr::Small(sum), precision });
                }
            }
            _ => {}
        }
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        let low = x.min(y);
        Self::rounded((a << (x - low)) + (b << (y - low)), low, false, precision)
    }

    /// Returns the negated number.
    #[must_use]
    pub fn negate(&self) -> Self {
        match &self.repr {
            Repr::Small(0) => return Self::zero(true, self.precision),
            Repr::MinusZero => return Self::zero(false, self.precision),
            Repr::Infinite { negative } => return Self::infinite(!negative),
            Repr::Small(_) | Repr::Big(_) => {}
        }
        let (mantissa, exponent) = self.parts();
        // The same number of bits is in the same range.
        let bits = u32::try_from(mantissa.bits()).unwrap_or(COUNTED);
        let negative = Self::rounded(-mantissa, exponent, false, self.precision.max(bits));
        Self { precision: self.precision, ..negative.unwrap_or(Self::ZERO) }
    }

    /// Returns the difference; `None` as for sums.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.negate())
    }

    /// Returns the product; `None` if it is out of range, or undefined because an infinity is multiplied by zero. The
    /// product is exact up to 512 bits, whatever the precision of the factors.
    #[must_use]
    pub fn times(&self, other: &Self) -> Option<Self> {
        let precision = self.precision.max(other.precision);
        let negative = self.has_sign() != other.has_sign();
        if self.is_infinite() || other.is_infinite() {
            return (!self.is_zero() && !other.is_zero()).then(|| Self::infinite(negative));
        }
        if self.is_zero() || other.is_zero() {
            return Some(Self::zero(negative, precision));
        }
        if let (Repr::Small(a), Repr::Small(b)) = (&self.repr, &other.repr)
            && let Some(product) = a.checked_mul(*b)
        {
            return Some(Self { repr: Repr::Small(product), precision });
        }
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        let out = Self::rounded(a * b, x + y, false, WRITTEN.max(precision))?;
        let needed = u32::try_from(out.parts().0.bits()).unwrap_or(WRITTEN);
        Some(Self { precision: precision.max(needed), ..out })
    }

    /// Returns the quotient, which is infinite for division by zero. Returns `None` if it is out of range, or
    /// undefined because both numbers are zero or infinite.
    #[must_use]
    pub fn over(&self, other: &Self) -> Option<Self> {
        let precision = self.precision.max(other.precision);
        let negative = self.has_sign() != other.has_sign();
        if self.is_infinite() || other.is_zero() {
            let defined = !(self.is_infinite() && other.is_infinite() || self.is_zero() && other.is_zero());
            return defined.then(|| Self::infinite(negative));
        }
        if self.is_zero() || other.is_infinite() {
            return Some(Self::zero(negative, precision));
        }
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        // Enough bits for the result, and one bit for rounding.
        let shift =
            (i64::from(precision) + 2 + i64::try_from(b.bits()).ok()? - i64::try_from(a.bits()).ok()?).max(0);
        let (sign, a) = (a << shift).into_parts();
        let (other_sign, b) = b.into_parts();
        let (quotient, rest) = (&a / &b, &a % &b);
        let quotient = BigInt::from_biguint(sign * other_sign, quotient);
        Self::rounded(quotient, x - y - shift, rest != BigUint::ZERO, precision)
    }

    /// Returns the remainder of a division, with the sign of the dividend; for division by zero, the dividend itself.
    /// Returns `None` if the quotient is out of range, or one of the numbers is infinite.
    #[must_use]
    pub fn remainder(&self, other: &Self) -> Option<Self> {
        if other.is_zero() {
            return Some(self.clone());
        }
        if self.is_infinite() || other.is_infinite() {
            return None;
        }
        if self.is_zero() {
            return Some(self.clone());
        }
        if let (Repr::Small(a), Repr::Small(b)) = (&self.repr, &other.repr) {
            let repr = Repr::Small(a.checked_rem(*b).unwrap_or_default());
            return Some(Self { repr, precision: self.precision });
        }
        // Uses the rounded quotient, as Nomad does.
        let (times, exponent) = self.over(other)?.truncate().parts();
        let (b, y) = other.parts();
        let product = Self::rounded(times * b, exponent + y, false, self.precision)?;
        let ((a, x), (p, z)) = (self.parts(), product.parts());
        let low = x.min(z);
        Self::rounded((a << (x - low)) - (p << (z - low)), low, false, self.precision)
    }

    /// Returns the number without its fraction.
    #[must_use]
    pub fn truncate(&self) -> Self {
        match &self.repr {
            Repr::Big(big) if big.exponent < 0 => {
                let (sign, magnitude) = big.mantissa.clone().into_parts();
                let whole = BigInt::from_biguint(sign, magnitude >> big.exponent.unsigned_abs());
                Self::rounded(whole, 0, false, self.precision).unwrap_or(Self::ZERO)
            }
            Repr::MinusZero => Self::zero(false, self.precision),
            _ => self.clone(),
        }
    }

    /// Returns the largest whole number at or below this one.
    #[must_use]
    pub fn floor(&self) -> Self {
        let cut = self.truncate();
        if cut > *self { cut.minus(&Self::ONE.with_precision(1)).unwrap_or(cut) } else { cut }
    }

    /// Returns the smallest whole number at or above this one.
    #[must_use]
    pub fn ceil(&self) -> Self {
        let cut = self.truncate();
        if cut < *self { cut.plus(&Self::ONE.with_precision(1)).unwrap_or(cut) } else { cut }
    }

    /// Returns the absolute value.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.has_sign() { self.negate() } else { self.clone() }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.repr == other.repr || self.is_zero() && other.is_zero()
    }
}

impl Eq for Number {}

impl From<i64> for Number {
    fn from(n: i64) -> Self {
        Self { repr: Repr::Small(n), precision: COUNTED }
    }
}

impl From<i128> for Number {
    fn from(n: i128) -> Self {
        Self::from_whole(BigInt::from(n)).expect("128 bits are in range")
    }
}

impl From<usize> for Number {
    fn from(n: usize) -> Self {
        Self::from(n as i128)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.repr, &other.repr) {
            return a.cmp(b);
        }
        // Infinities order before and after all numbers.
        let rank = |n: &Self| match n.repr {
            Repr::Infinite { negative: true } => -1,
            Repr::Infinite { negative: false } => 1,
            _ => 0,
        };
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        let low = x.min(y);
        rank(self).cmp(&rank(other)).then_with(|| (a << (x - low)).cmp(&(b << (y - low))))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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
        assert_eq!(n("9223372036854775807").plus(&Number::ONE).unwrap().to_string(), "9223372036854775808");
        assert_eq!(n("-9").remainder(&n("4")).unwrap().to_string(), "-1");
        assert_eq!(n("9.5").remainder(&n("4")).unwrap().to_string(), "1.5");
        assert_eq!(n("-1").over(&n("8")).unwrap().to_string(), "-0.125");
        assert_eq!(n("2").over(&n("3")).unwrap().to_f64(), 2.0 / 3.0);
        assert_eq!(n("1").over(&Number::ZERO).unwrap().to_string(), "+Inf");
        assert_eq!(n("-1").over(&Number::ZERO).unwrap().to_string(), "-Inf");
        assert_eq!(Number::ZERO.over(&Number::ZERO), None);
        assert_eq!(n("5").remainder(&Number::ZERO), Some(n("5")));
        assert_eq!(n("-0.5").floor().to_string(), "-1");
        assert_eq!(n("-0.5").ceil().to_string(), "0");
        assert_eq!(n("7.5").times(&n("2")).unwrap().to_i64(), Some(15));
        assert_eq!(n("5e-324").to_f64(), 5e-324);
        assert!(n("1e100") > n("1e99"));
        assert!(n("-1e100") < n("1"));
        assert_eq!(n("1.50"), n("1.5"));
    }

    /// Checks the number of decimal digits: 512 bits are about 154 of them.
    #[test]
    fn fractions_have_the_digits_of_512_bits() {
        let third = n("1").over(&n("3")).unwrap().to_string();
        assert!(third.starts_with("0.33333333333333333333333333333333"), "{third}");
        assert!((153..=158).contains(&third.len()), "{third}");
        // Numbers from integers have fewer digits.
        let third = Number::ONE.over(&Number::from(3_i64)).unwrap().to_string();
        assert!((20..=23).contains(&third.len()), "{third}");
    }

    #[test]
    fn what_is_out_of_range_is_refused_and_never_computed() {
        assert!("1e999999999".parse::<Number>().is_err());
        let mut big = n("1e900");
        for _ in 0..3 {
            match big.times(&big) {
                Some(next) => big = next,
                None => return,
            }
        }
        panic!("it grew without bounds");
    }

    proptest! {
        #[test]
        fn whole_numbers_are_exact(a: i64, b: i64) {
            let (x, y) = (Number::from(a), Number::from(b));
            prop_assert_eq!(x.plus(&y).unwrap().to_i128(), Some(i128::from(a) + i128::from(b)));
            prop_assert_eq!(x.times(&y).unwrap().to_i128(), Some(i128::from(a) * i128::from(b)));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.to_string(), a.to_string());
            prop_assert_eq!(x.to_i64(), Some(a));
        }

        #[test]
        fn floats_survive(f: f64) {
            if let Some(x) = Number::from_f64(f) {
                prop_assert_eq!(x.to_f64(), f);
                prop_assert_eq!(x.to_string().parse::<Number>().unwrap().to_f64(), f);
                prop_assert_eq!(x.to_string().parse::<f64>(), Ok(f));
            }
        }

        /// Checks that printed numbers parse to exactly the same number.
        #[test]
        fn printed_numbers_read_back(a in "-?[0-9]{1,40}(\\.[0-9]{1,40})?", b in 1_i64..) {
            let x = n(&a).over(&n(&b.to_string())).unwrap();
            prop_assert_eq!(n(&x.to_string()), x);
        }

        #[test]
        fn division_and_remainder_fit(a: i64, b: i64) {
            prop_assume!(b != 0);
            let (x, y) = (n(&a.to_string()), n(&b.to_string()));
            let rest = i128::from(a) % i128::from(b);
            prop_assert_eq!(x.remainder(&y).unwrap().to_i128(), Some(rest));
        }
    }
}

//! Powers and logarithms with exactly the digits that Nomad computes, because values of existing jobs depend on them.
//! The platform's math library rounds differently.

/// Returns the natural logarithm by an approximation of `ln((1 + s) / (1 - s))` in `s` (fdlibm, `e_log.c`).
pub(super) fn ln(x: f64) -> f64 {
    const HIGH: f64 = 6.931_471_803_691_238e-1;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    const ODD: [f64; 4] = [
        6.666_666_666_666_735e-1,
        2.857_142_874_366_239e-1,
        1.818_357_216_161_805e-1,
        1.479_819_860_511_658_6e-1,
    ];
    const EVEN: [f64; 3] = [3.999_999_999_940_942e-1, 2.222_219_843_214_978_4e-1, 1.531_383_769_920_937_3e-1];
    if x <= 0.0 || !x.is_finite() {
        return x.ln();
    }
    let (mut part, mut k) = mantissa(x);
    if part < std::f64::consts::FRAC_1_SQRT_2 {
        part *= 2.0;
        k -= 1;
    }
    let f = part - 1.0;
    #[expect(clippy::cast_precision_loss, reason = "the exponent of a number is small")]
    let k = k as f64;
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (ODD[0] + s4 * (ODD[1] + s4 * (ODD[2] + s4 * ODD[3])));
    let even = s4 * (EVEN[0] + s4 * (EVEN[1] + s4 * EVEN[2]));
    let half = 0.5 * f * f;
    k * HIGH - ((half - (s * (half + (odd + even)) + k * LOW)) - f)
}

/// Returns the exponential: the argument without its powers of two, divided by sixteen, by a Taylor series.
fn exp(x: f64) -> f64 {
    const HIGH: f64 = 0.693_147_180_559_662_956_511_601_805_686_950_683_593_75;
    const LOW: f64 = 0.282_352_905_630_315_771_225_884_481_750_134_360_255_254_120_68e-12;
    // 1/8!, 1/7!, ..., 1/2!, 1/1!
    const SERIES: [f64; 8] = [
        2.480_158_730_158_73e-5,
        1.984_126_984_126_984e-4,
        1.388_888_888_888_889e-3,
        8.333_333_333_333_333e-3,
        4.166_666_666_666_666_4e-2,
        1.666_666_666_666_666_6e-1,
        0.5,
        1.0,
    ];
    if !x.is_finite() || x.abs() > 700.0 {
        return x.exp();
    }
    let twos = (x * std::f64::consts::LOG2_E).round_ties_even();
    let rest = (-LOW).mul_add(twos, (-HIGH).mul_add(twos, x)) * 0.0625;
    let (first, series) = (SERIES[0], &SERIES[1..]);
    let mut out = series.iter().fold(first, |sum, term| sum.mul_add(rest, *term)) * rest;
    // e^(2x) - 1 = (e^x - 1) * (e^x + 1), four times for the sixteenth.
    for _ in 0..3 {
        out *= 2.0 + out;
    }
    let out = (2.0 + out).mul_add(out, 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
    scaled(out, twos as i64)
}

/// Returns a power by repeated squaring of the mantissa, with `exp` and `ln` only for the fraction of the exponent.
/// The processor's own instruction gives other last digits than Nomad.
#[expect(clippy::float_cmp, reason = "these are the values that have rules of their own")]
pub(super) fn power(x: f64, y: f64) -> f64 {
    if x == 0.0 || x == 1.0 || !x.is_finite() || y == 0.0 || y == 1.0 || !y.is_finite() {
        return x.powf(y);
    }
    if y.abs() == 0.5 {
        return if y > 0.0 { x.sqrt() } else { 1.0 / x.sqrt() };
    }
    let (mut whole, mut fraction) = (y.abs().trunc(), y.abs().fract());
    if whole >= 9.2e18 || fraction != 0.0 && x < 0.0 {
        return x.powf(y);
    }
    let (mut out, mut exponent) = (1.0, 0_i64);
    if fraction != 0.0 {
        if fraction > 0.5 {
            fraction -= 1.0;
            whole += 1.0;
        }
        out = exp(fraction * ln(x));
    }
    let (mut square, mut shift) = mantissa(x);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and was compared above")]
    let mut left = whole as i64;
    while left != 0 {
        // Beyond this shift, the result is zero or infinite.
        if shift.abs() > 1 << 12 {
            exponent += shift;
            break;
        }
        if left & 1 == 1 {
            out *= square;
            exponent += shift;
        }
        square *= square;
        shift *= 2;
        if square < 0.5 {
            square += square;
            shift -= 1;
        }
        left >>= 1;
    }
    if y < 0.0 {
        out = 1.0 / out;
        exponent = -exponent;
    }
    scaled(out, exponent)
}

/// Splits a number into a mantissa in [0.5, 1) and a power of two.
fn mantissa(x: f64) -> (f64, i64) {
    let (x, extra) = if x.is_normal() { (x, 0) } else { (x * 2_f64.powi(64), -64) };
    let biased = i64::try_from(x.to_bits() >> 52 & 0x7ff).unwrap_or_default();
    (f64::from_bits(x.to_bits() & !(0x7ff << 52) | 1022 << 52), biased - 1022 + extra)
}

/// Multiplies a number by a power of two. Rounds once, if the result is subnormal.
fn scaled(x: f64, exponent: i64) -> f64 {
    let (mantissa, own) = mantissa(x);
    let all = own + exponent;
    let part = |e: i64| 2_f64.powi(i32::try_from(e.clamp(-1022, 1023)).unwrap_or_default());
    match all {
        1025.. => f64::INFINITY.copysign(x),
        ..-1100 => 0_f64.copysign(x),
        1024 => mantissa * 2.0 * part(1023),
        -1021.. => mantissa * part(all),
        _ => mantissa * part(-1022) * part(all + 1022),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_have_the_digits_of_the_reference() {
        for (x, y, want) in [
            (10.0, 1.5, 31.622_776_601_683_796),
            (2.0, 0.5, std::f64::consts::SQRT_2),
            (10.0, 20.0, 1e20),
            (2.0, -1074.0, 5e-324),
            (2.0, 1024.0, f64::INFINITY),
            (-2.0, 3.0, -8.0),
            (5e-324, 1.0, 5e-324),
            (5e-324, 0.5, 2.222_758_749_485_077_6e-162),
            (0.1, 400.0, 0.0),
        ] {
            assert_eq!(power(x, y), want, "{x} ^ {y}");
        }
        assert!(power(-8.0, 1.0 / 3.0).is_nan());
    }
}

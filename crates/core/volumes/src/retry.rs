//! Delays after failures.

use caravan_types::Nanos;

const FIRST: i64 = 500_000_000;
const CEILING: i64 = 60_000_000_000;

/// Returns the delay before the next attempt after `tries` consecutive failures. It is half a second, doubled each
/// time, and at most one minute; zero without a failure.
pub fn delay(tries: u32) -> Nanos {
    let Some(doublings) = tries.checked_sub(1) else { return Nanos::ZERO };
    // Seven doublings already exceed the ceiling.
    Nanos((FIRST << doublings.min(7)).min(CEILING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let seconds: Vec<f64> = [0, 1, 2, 3, 7, 8, 9, u32::MAX]
            .iter()
            .map(|tries| delay(*tries).to_std().as_secs_f64())
            .collect();
        assert_eq!(seconds, [0.0, 0.5, 1.0, 2.0, 32.0, 60.0, 60.0, 60.0]);
    }
}

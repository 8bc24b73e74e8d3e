//! Numbers and ids that are derived from a seed: the same evaluation with the same seed gives the same plan.

/// A generator of the SplitMix64 family (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
/// The generator is good enough to break ties and to create ids, but not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    left: u64,
    right: u64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// Creates a generator for a seed. The text separates this use of the seed from other uses.
    pub fn new(seed: u64, text: &str) -> Self {
        // FNV-1a gives a second, independent word of state, so that ids of different evaluations differ even when
        // their seeds collide.
        let right = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { left: seed, right }
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        advance(&mut self.left) ^ advance(&mut self.right).rotate_left(32)
    }

    /// Returns a number below `limit`, or 0 if the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        if limit == 0 {
            return 0;
        }
        usize::try_from(self.number() % limit).unwrap_or(0)
    }

    /// Returns an id in the form of a random UUID (RFC 9562, version 4).
    pub fn uuid(&mut self) -> String {
        let high = (advance(&mut self.left) & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (advance(&mut self.right) & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}

fn advance(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_uuids_and_differ() {
        let mut rng = Rng::new(7, "eval");
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| rng.uuid()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(id.len(), 36);
            assert_eq!(&id[14..15], "4");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"));
        }
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let numbers = |seed, text| {
            let mut rng = Rng::new(seed, text);
            (0..5).map(|_| rng.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, "a"), numbers(1, "a"));
        assert_ne!(numbers(1, "a"), numbers(2, "a"));
        assert_ne!(numbers(1, "a"), numbers(1, "b"));
    }
}

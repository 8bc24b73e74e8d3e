//! The password hash bcrypt (Provos and Mazières, "A Future-Adaptable Password Scheme", 1999), on Blowfish
//! (Schneier, 1993), whose first state is the fraction of pi.

use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

use super::Result;

const ALPHABET: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const ROUNDS: usize = 18;
const MAGIC: &[u8; 24] = b"OrpheanBeholderScryDoubt";

/// What the hash itself allows. Evaluation as a whole ends sooner: at 20, or several at less (`work`).
const MAX_COST: u32 = 31;

/// Hashes a password with a fresh salt.
#[expect(clippy::disallowed_methods, reason = "the language asks for a fresh salt")]
pub(super) fn hash(password: &str, cost: i64) -> Result<String> {
    let cost = u32::try_from(cost).ok().filter(|c| (4..=MAX_COST).contains(c));
    let cost = cost.ok_or_else(|| format!("the cost must be a whole number from 4 to {MAX_COST}"))?;
    if password.len() > 72 {
        return Err("the password must not be longer than 72 bytes".to_owned());
    }
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let mixed = Sha256::digest([random[0].into_bytes(), random[1].into_bytes()].concat());
    let mut salt = [0; 16];
    salt.copy_from_slice(&mixed[..16]);
    Ok(with_salt(password.as_bytes(), cost, salt))
}

fn with_salt(password: &[u8], cost: u32, salt: [u8; 16]) -> String {
    let mut key = password.to_vec();
    key.push(0);
    key.truncate(72);
    let mut state = first_state().clone();
    state.expand(&salt, &key);
    for _ in 0..1_u32 << cost {
        state.expand(&[0; 16], &key);
        state.expand(&[0; 16], &salt);
    }
    let mut out = Vec::with_capacity(24);
    for block in MAGIC.chunks_exact(8) {
        let mut pair = (word(block, 0), word(block, 4));
        for _ in 0..64 {
            pair = state.encrypt(pair);
        }
        out.extend_from_slice(&pair.0.to_be_bytes());
        out.extend_from_slice(&pair.1.to_be_bytes());
    }
    format!("$2a${cost:02}${}{}", encode(&salt), encode(&out[..23]))
}

/// The 32 bits at a byte, going round at the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    (0..4).fold(0, |acc, i| acc << 8 | u32::from(bytes[(at + i) % bytes.len()]))
}

fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |acc, b| acc << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * i) & 63) as usize]));
        }
    }
    out
}

#[derive(Clone)]
struct State {
    p: [u32; ROUNDS],
    s: [[u32; 256]; 4],
}

impl State {
    fn encrypt(&self, (mut left, mut right): (u32, u32)) -> (u32, u32) {
        for i in 0..16 {
            left ^= self.p[i];
            let [a, b, c, d] = left.to_be_bytes().map(usize::from);
            right ^= (self.s[0][a].wrapping_add(self.s[1][b]) ^ self.s[2][c]).wrapping_add(self.s[3][d]);
            std::mem::swap(&mut left, &mut right);
        }
        std::mem::swap(&mut left, &mut right);
        (left ^ self.p[17], right ^ self.p[16])
    }

    fn expand(&mut self, salt: &[u8; 16], key: &[u8]) {
        for (i, p) in self.p.iter_mut().enumerate() {
            *p ^= word(key, 4 * i);
        }
        let mut pair = (0, 0);
        for i in 0..(ROUNDS + 1024) / 2 {
            pair = self.encrypt((pair.0 ^ word(salt, 8 * i), pair.1 ^ word(salt, 8 * i + 4)));
            *self.cell(2 * i) = pair.0;
            *self.cell(2 * i + 1) = pair.1;
        }
    }

    fn cell(&mut self, i: usize) -> &mut u32 {
        match i.checked_sub(ROUNDS) {
            None => &mut self.p[i],
            Some(i) => &mut self.s[i / 256][i % 256],
        }
    }
}

fn first_state() -> &'static State {
    static STATE: OnceLock<State> = OnceLock::new();
    STATE.get_or_init(|| {
        let mut state = State { p: [0; ROUNDS], s: [[0; 256]; 4] };
        for (i, digits) in fraction_of_pi(ROUNDS + 1024).into_iter().enumerate() {
            *state.cell(i) = digits;
        }
        state
    })
}

/// The first words of the fraction of pi, by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239).
fn fraction_of_pi(words: usize) -> Vec<u32> {
    // A whole part, and some words more for what is cut off along the way.
    let length = words + 4;
    let mut sum = vec![0; length];
    for (factor, x, positive) in [(16, 5, true), (4, 239, false)] {
        let mut power = vec![0; length];
        power[0] = factor;
        divide(&mut power, x);
        let mut n = 1;
        while power.iter().any(|w| *w != 0) {
            let mut term = power.clone();
            divide(&mut term, n);
            add(&mut sum, &term, positive == (n % 4 == 1));
            divide(&mut power, x * x);
            n += 2;
        }
    }
    sum[1..=words].to_vec()
}

fn divide(number: &mut [u32], by: u32) {
    let mut rest = 0_u64;
    for word in number {
        let dividend = rest << 32 | u64::from(*word);
        *word = u32::try_from(dividend / u64::from(by)).unwrap_or_default();
        rest = dividend % u64::from(by);
    }
}

fn add(sum: &mut [u32], term: &[u32], positive: bool) {
    let mut carry = false;
    for (s, t) in sum.iter_mut().zip(term).rev() {
        let (a, first) = if positive { s.overflowing_add(*t) } else { s.overflowing_sub(*t) };
        let carried = u32::from(carry);
        let (b, second) = if positive { a.overflowing_add(carried) } else { a.overflowing_sub(carried) };
        *s = b;
        carry = first || second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(first_state().p[0], 0x243f_6a88);
        // "CCCCCCCCCCCCCCCCCCCCC." in bcrypt's alphabet.
        let salt =
            [0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10, 0x41, 0x04, 0x10];
        assert_eq!(
            with_salt(b"U*U", 5, salt),
            "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
        );
        assert!(hash("pw", 5).unwrap().starts_with("$2a$05$"));
        assert!(hash("pw", 40).is_err());
    }
}

//! Specifications of the objects of the API: variables and jobs with compare-and-set, and locks.

use super::Spec;

/// A variable, or a job with an enforced index. Each write has a different value, so comparing indexes
/// means comparing values.
#[derive(Clone, Copy, Debug)]
pub struct Register;

/// An operation on a register. Zero is the value of an absent object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// Reads the value.
    Read,
    /// Replaces the value.
    Write(u64),
    /// Replaces the value if it is `from`.
    Cas {
        /// The compared value.
        from: u64,
        /// The new value.
        to: u64,
    },
}

/// The result of an operation on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRet {
    /// The value that was read.
    Value(u64),
    /// The write took effect.
    Done,
    /// The compared value differed from the current one.
    Conflict,
}

impl Spec for Register {
    type State = u64;
    type Op = RegisterOp;
    type Ret = RegisterRet;

    fn start() -> u64 {
        0
    }

    fn step(state: &u64, op: &RegisterOp, ret: &RegisterRet) -> Option<u64> {
        match (*op, *ret) {
            (RegisterOp::Read, RegisterRet::Value(value)) if value == *state => Some(*state),
            (RegisterOp::Write(value), RegisterRet::Done) => Some(value),
            (RegisterOp::Cas { from, to }, RegisterRet::Done) if from == *state => Some(to),
            (RegisterOp::Cas { from, .. }, RegisterRet::Conflict) if from != *state => Some(*state),
            _ => None,
        }
    }

    fn effects(state: &u64, op: &RegisterOp) -> Vec<u64> {
        match *op {
            RegisterOp::Write(value) => vec![value],
            RegisterOp::Cas { from, to } if from == *state => vec![to],
            RegisterOp::Read | RegisterOp::Cas { .. } => vec![*state],
        }
    }
}

/// A lock whose lease does not expire during the history.
#[derive(Clone, Copy, Debug)]
pub struct Lock;

/// An operation on a lock. Each acquisition has a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockOp {
    /// Acquires the lock if it is free.
    Acquire(u64),
    /// Releases an acquisition.
    Release(u64),
}

impl Spec for Lock {
    /// The acquisition that holds the lock.
    type State = Option<u64>;
    type Op = LockOp;
    /// Whether the operation took effect.
    type Ret = bool;

    fn start() -> Option<u64> {
        None
    }

    fn step(state: &Option<u64>, op: &LockOp, ret: &bool) -> Option<Option<u64>> {
        match (*op, *ret) {
            (LockOp::Acquire(number), true) if state.is_none() => Some(Some(number)),
            (LockOp::Acquire(_), false) if state.is_some() => Some(*state),
            (LockOp::Release(number), true) if *state == Some(number) => Some(None),
            (LockOp::Release(number), false) if *state != Some(number) => Some(*state),
            _ => None,
        }
    }

    fn effects(state: &Option<u64>, op: &LockOp) -> Vec<Option<u64>> {
        match *op {
            LockOp::Acquire(number) if state.is_none() => vec![Some(number)],
            LockOp::Release(number) if *state == Some(number) => vec![None],
            LockOp::Acquire(_) | LockOp::Release(_) => vec![*state],
        }
    }
}

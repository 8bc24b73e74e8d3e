use super::specs::{Lock, LockOp, Register, RegisterOp, RegisterRet};
use super::{NotLinearizable, Operation, check};
use crate::chaos::rng::Rng;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

type Register1 = Operation<RegisterOp, RegisterRet>;

fn answered(client: usize, span: (u64, u64), op: RegisterOp, ret: RegisterRet) -> Register1 {
    Operation { client, called: span.0, answered: Some((span.1, ret)), op }
}

fn unanswered(client: usize, called: u64, op: RegisterOp) -> Register1 {
    Operation { client, called, answered: None, op }
}

#[test]
fn orders_are_found_or_refused() {
    use RegisterOp::{Cas, Read, Write};
    use RegisterRet::{Conflict, Done, Value};
    let write = answered(0, (1, 4), Write(1), Done);
    // A read during a write may return either value; a read after the write returns the new one.
    for (beside, after, is_good) in [(0, 1, true), (1, 1, true), (0, 0, false), (1, 0, false)] {
        let history = [
            write.clone(),
            answered(1, (2, 3), Read, Value(beside)),
            answered(1, (5, 6), Read, Value(after)),
        ];
        assert_eq!(check::<Register>(&history).is_ok(), is_good, "{beside} {after}");
    }
    // Of two comparisons with one value, one fails.
    let twice = |second| {
        [
            answered(0, (1, 4), Cas { from: 0, to: 1 }, Done),
            answered(1, (2, 3), Cas { from: 0, to: 2 }, second),
        ]
    };
    assert!(check::<Register>(&twice(Conflict)).is_ok());
    let NotLinearizable { longest, stuck } = check::<Register>(&twice(Done)).unwrap_err();
    assert_eq!((longest.len(), stuck.len()), (1, 1));
    // A write without a response takes effect late, or never.
    for value in [0, 7] {
        let history = [unanswered(0, 1, Write(7)), answered(1, (8, 9), Read, Value(value))];
        assert!(check::<Register>(&history).is_ok());
    }
    let history = [
        unanswered(0, 1, Write(7)),
        answered(1, (8, 9), Read, Value(7)),
        answered(1, (10, 11), Read, Value(0)),
    ];
    assert!(check::<Register>(&history).is_err());
}

#[test]
fn a_lock_has_one_holder() {
    let lock = |span: (u64, u64), op, ret| Operation {
        client: 0,
        called: span.0,
        answered: Some((span.1, ret)),
        op,
    };
    let good = [
        lock((1, 2), LockOp::Acquire(1), true),
        lock((3, 4), LockOp::Acquire(2), false),
        lock((5, 6), LockOp::Release(1), true),
        lock((7, 8), LockOp::Acquire(3), true),
    ];
    assert!(check::<Lock>(&good).is_ok());
    let two = [lock((1, 2), LockOp::Acquire(1), true), lock((3, 4), LockOp::Acquire(2), true)];
    assert!(check::<Lock>(&two).is_err());
}

/// The register in the form of the other checker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reference(u64);

impl SequentialSpec for Reference {
    type Op = RegisterOp;
    type Ret = RegisterRet;

    fn invoke(&mut self, op: &RegisterOp) -> RegisterRet {
        match *op {
            RegisterOp::Read => RegisterRet::Value(self.0),
            RegisterOp::Write(value) => {
                self.0 = value;
                RegisterRet::Done
            }
            RegisterOp::Cas { from, to } if from == self.0 => {
                self.0 = to;
                RegisterRet::Done
            }
            RegisterOp::Cas { .. } => RegisterRet::Conflict,
        }
    }
}

/// Returns a random history of three clients. Half of the results are taken from a real register, the
/// others are random.
fn draw(rng: &mut Rng) -> (Vec<Register1>, bool) {
    let mut tester = LinearizabilityTester::<usize, _>::new(Reference(0));
    let mut real = Reference(0);
    let mut open: [Option<(u64, RegisterOp, RegisterRet)>; 3] = [None; 3];
    let mut history = Vec::new();
    for now in 1..=16 {
        let client = rng.index(3);
        if let Some((called, op, ret)) = open[client].take() {
            tester.on_return(client, ret).unwrap();
            history.push(answered(client, (called, now), op, ret));
            continue;
        }
        let op = match rng.below(3) {
            0 => RegisterOp::Read,
            1 => RegisterOp::Write(1 + rng.below(3)),
            _ => RegisterOp::Cas { from: rng.below(4), to: 1 + rng.below(3) },
        };
        let mut ret = real.invoke(&op);
        if rng.percent(20) {
            ret = match op {
                RegisterOp::Read => RegisterRet::Value(rng.below(4)),
                RegisterOp::Write(_) => RegisterRet::Done,
                RegisterOp::Cas { .. } => *rng.pick(&[RegisterRet::Done, RegisterRet::Conflict]),
            };
        }
        tester.on_invoke(client, op).unwrap();
        open[client] = Some((now, op, ret));
    }
    for (client, left) in open.into_iter().enumerate() {
        history.extend(left.map(|(called, op, _)| unanswered(client, called, op)));
    }
    (history, tester.is_consistent())
}

#[test]
fn both_checkers_agree() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..3000 {
        let (history, expected) = draw(&mut Rng::new(seed));
        assert_eq!(check::<Register>(&history).is_ok(), expected, "seed {seed}: {history:#?}");
        *if expected { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 300 && bad > 300, "{good} good, {bad} bad histories");
}

/// Checks a long history of concurrent writers. Without the memory, the search would not end.
#[test]
fn long_histories_are_checked() {
    let mut history = Vec::new();
    for round in 0..200_u64 {
        for client in 0..4_u64 {
            let value = 1 + round * 4 + client;
            let span = (10 * round + client, 10 * round + 8);
            let ret = RegisterRet::Done;
            history.push(answered(usize::try_from(client).unwrap(), span, RegisterOp::Write(value), ret));
        }
    }
    assert!(check::<Register>(&history).is_ok());
    // No client wrote this value.
    history.push(answered(9, (5000, 5001), RegisterOp::Read, RegisterRet::Value(5)));
    assert!(check::<Register>(&history).is_err());
}

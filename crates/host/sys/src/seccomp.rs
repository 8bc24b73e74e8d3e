//! System call filters (seccomp(2)) and the no_new_privs attribute that they require.
//!
//! A filter is compiled to a binary search over ranges of call numbers. When a filter is loaded, the kernel runs it
//! once for every number, to remember which calls are always allowed. Later it runs the filter for every call whose
//! result depends on its argument. A list of one comparison per call takes a millisecond to load, the search a
//! twentieth of that.

use crate::{Error, Result};
use nix::libc;
use std::collections::BTreeMap;

/// An instruction of a filter (linux/filter.h).
pub type Instruction = libc::sock_filter;

/// The result of a filter for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is executed.
    Allow,
    /// The call fails with this errno.
    Errno(u16),
    /// The process is killed.
    Kill,
}

/// A condition on the lower 32 bits of a call's first argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The argument is in one of these ranges, ends included.
    In(Vec<(u32, u32)>),
    /// None of these bits is set.
    Without(u32),
}

/// The rule for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The same verdict for all arguments.
    Always(Verdict),
    /// Allowed if the condition holds, otherwise this verdict.
    If(Condition, Verdict),
}

/// The verdicts for all calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rules by call number.
    pub rules: BTreeMap<u32, Rule>,
    /// The verdict for numbers up to `newest` without a rule.
    pub other: Verdict,
    /// The highest call number that the rules' author considered.
    pub newest: u32,
    /// The verdict for numbers after `newest`.
    pub newer: Verdict,
    /// The verdict for calls through another architecture's interface.
    pub foreign: Verdict,
}

/// The architecture as filters see it (`AUDIT_ARCH_*` of linux/audit.h).
#[cfg(target_arch = "x86_64")]
pub const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
#[expect(missing_docs, reason = "documented for the other architecture")]
pub const ARCH: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data` (linux/seccomp.h); the argument is the lower half of the first one.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENT: u32 = 16;

/// Instruction codes (linux/bpf_common.h), all with the whole accumulator and a constant.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

impl Policy {
    /// Compiles the filter.
    pub fn compile(&self) -> Vec<Instruction> {
        let mut ranges: Vec<(u32, Rule)> = Vec::new();
        for number in 0..=self.newest {
            let rule = self.rules.get(&number).cloned().unwrap_or(Rule::Always(self.other));
            if ranges.last().is_none_or(|(_, last)| *last != rule || matches!(rule, Rule::If(..))) {
                ranges.push((number, rule));
            }
        }
        ranges.push((self.newest.saturating_add(1), Rule::Always(self.newer)));
        let mut program = vec![
            instruction(LOAD, 0, 0, ARCHITECTURE),
            instruction(IF_EQUAL, 1, 0, ARCH),
            answer(self.foreign),
            instruction(LOAD, 0, 0, NUMBER),
        ];
        program.extend(search(&ranges));
        program
    }
}

/// Compiles a binary search for the range that contains the call's number.
fn search(ranges: &[(u32, Rule)]) -> Vec<Instruction> {
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let (Some((first, _)), false) = (upper.first(), lower.is_empty()) else {
        return upper.first().map(|(_, rule)| leaf(rule)).unwrap_or_default();
    };
    let (below, above) = (search(lower), search(upper));
    let mut program = match u8::try_from(below.len()) {
        Ok(over) => vec![instruction(IF_AT_LEAST, over, 0, *first)],
        // Only the unconditional jump reaches that far.
        Err(_) => vec![
            instruction(IF_AT_LEAST, 0, 1, *first),
            instruction(JUMP, 0, 0, u32::try_from(below.len()).unwrap_or(u32::MAX)),
        ],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(rule: &Rule) -> Vec<Instruction> {
    match rule {
        Rule::Always(verdict) => vec![answer(*verdict)],
        Rule::If(Condition::Without(bits), otherwise) => vec![
            instruction(LOAD, 0, 0, ARGUMENT),
            instruction(IF_ANY_BIT, 1, 0, *bits),
            answer(Verdict::Allow),
            answer(*otherwise),
        ],
        Rule::If(Condition::In(ranges), otherwise) => {
            let mut program = vec![instruction(LOAD, 0, 0, ARGUMENT)];
            for (first, last) in ranges {
                program.extend([
                    instruction(IF_AT_LEAST, 0, 2, *first),
                    instruction(IF_GREATER, 1, 0, *last),
                    answer(Verdict::Allow),
                ]);
            }
            program.push(answer(*otherwise));
            program
        }
    }
}

/// Returns the instruction for a verdict, with the values of linux/seccomp.h.
fn answer(verdict: Verdict) -> Instruction {
    let value = match verdict {
        Verdict::Allow => libc::SECCOMP_RET_ALLOW,
        Verdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
        Verdict::Kill => libc::SECCOMP_RET_KILL_PROCESS,
    };
    instruction(RETURN, 0, 0, value)
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Adds a filter to those of the calling thread. The filter survives execve(2) and cannot be removed. Requires
/// `CAP_SYS_ADMIN`, or [`forbid_new_privileges`] before.
pub fn load(program: &[Instruction]) -> Result<()> {
    let failed = |source| Error::Call { operation: "load a filter of system calls", source };
    let length = u16::try_from(program.len())
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, error)))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` refers to as many live instructions as its length says; the kernel copies them and writes
    // nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&program))
    };
    if result == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// Sets no_new_privs (`PR_SET_NO_NEW_PRIVS`) for the calling thread: set-user-id bits and file capabilities of
/// programs executed later have no effect.
pub fn forbid_new_privileges() -> Result<()> {
    rustix::thread::set_no_new_privs(true).map_err(Error::call("forbid new privileges"))
}

/// Interprets a compiled filter for a call and returns its verdict; `None` for an invalid program.
pub fn evaluate(program: &[Instruction], arch: u32, number: u32, argument: u32) -> Option<Verdict> {
    let (mut at, mut value) = (0usize, 0u32);
    loop {
        let instruction = program.get(at)?;
        at += 1;
        let mut jump = |holds: bool| {
            at += usize::from(if holds { instruction.jt } else { instruction.jf });
        };
        let k = instruction.k;
        match instruction.code {
            LOAD => {
                value = match k {
                    NUMBER => number,
                    ARCHITECTURE => arch,
                    ARGUMENT => argument,
                    _ => return None,
                }
            }
            JUMP => at += usize::try_from(k).ok()?,
            IF_EQUAL => jump(value == k),
            IF_GREATER => jump(value > k),
            IF_AT_LEAST => jump(value >= k),
            IF_ANY_BIT => jump(value & k != 0),
            RETURN => {
                return match k & !0xffff {
                    libc::SECCOMP_RET_ALLOW => Some(Verdict::Allow),
                    libc::SECCOMP_RET_ERRNO => u16::try_from(k & 0xffff).ok().map(Verdict::Errno),
                    libc::SECCOMP_RET_KILL_PROCESS => Some(Verdict::Kill),
                    _ => None,
                };
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![Just(Verdict::Allow), Just(Verdict::Kill), (1u16..4000).prop_map(Verdict::Errno),]
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let ranges = prop::collection::vec((0u32..60, 0u32..60), 0..6);
        prop_oneof![
            4 => verdict().prop_map(Rule::Always),
            1 => (any::<u32>(), verdict()).prop_map(|(bits, v)| Rule::If(Condition::Without(bits), v)),
            1 => (ranges, verdict()).prop_map(|(ranges, v)| Rule::If(Condition::In(ranges), v)),
        ]
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let rules = prop::collection::btree_map(0u32..300, rule(), 0..120);
        (rules, verdict(), 100u32..300, verdict(), verdict()).prop_map(
            |(rules, other, newest, newer, foreign)| Policy { rules, other, newest, newer, foreign },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_compiled_policy_answers_as_it_says(policy in policy(), arguments in prop::collection::vec(0u32..70, 4)) {
            let program = policy.compile();
            prop_assert!(program.len() < 4096, "the kernel takes no more (BPF_MAXINSNS)");
            for number in (0..310).chain([0x4000_0000, u32::MAX]) {
                for argument in &arguments {
                    let expected = match policy.rules.get(&number) {
                        _ if number > policy.newest => policy.newer,
                        None => policy.other,
                        Some(Rule::Always(verdict)) => *verdict,
                        Some(Rule::If(condition, otherwise)) => {
                            let holds = match condition {
                                Condition::Without(bits) => argument & bits == 0,
                                Condition::In(ranges) => {
                                    ranges.iter().any(|(first, last)| (first..=last).contains(&argument))
                                }
                            };
                            if holds { Verdict::Allow } else { *otherwise }
                        }
                    };
                    prop_assert_eq!(evaluate(&program, ARCH, number, *argument), Some(expected));
                }
            }
            prop_assert_eq!(evaluate(&program, 0x4000_0003, 1, 0), Some(policy.foreign));
        }
    }

    #[test]
    fn a_filter_holds_for_the_thread_that_loads_it() {
        let rules =
            BTreeMap::from([(u32::try_from(libc::SYS_getppid).unwrap(), Rule::Always(Verdict::Errno(99)))]);
        let policy = Policy {
            rules,
            other: Verdict::Allow,
            newest: 466,
            newer: Verdict::Allow,
            foreign: Verdict::Kill,
        };
        let answers = || {
            // SAFETY: getppid(2) takes no argument and accesses no memory.
            let result = unsafe { libc::syscall(libc::SYS_getppid) };
            (result, std::io::Error::last_os_error().raw_os_error())
        };
        std::thread::scope(|scope| {
            let filtered = scope.spawn(|| {
                forbid_new_privileges().unwrap();
                load(&policy.compile()).unwrap();
                answers()
            });
            assert_eq!(filtered.join().unwrap(), (-1, Some(99)));
        });
        assert!(answers().0 >= 0);
    }
}

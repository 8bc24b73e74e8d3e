//! The devices that a control group may use: one list of rules for both versions. On version 1 the kernel reads the
//! rules as text. Version 2 has no controller for devices, so the rules become a program that the kernel runs at each
//! use of a device ([`super::program`]).

use crate::mount::DeviceKind;
use crate::mountinfo::Device;
use crate::{Error, Result};
use std::str::FromStr;

/// The uses of a device that a rule allows, or that a process requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAccess {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Creating the device file (mknod(2)).
    pub create: bool,
}

impl DeviceAccess {
    /// Every use.
    pub const ALL: Self = Self { read: true, write: true, create: true };

    /// Returns the bits of the kernel (`BPF_DEVCG_ACC_*` in linux/bpf.h).
    pub(super) const fn bits(self) -> u16 {
        (self.create as u16) | (self.read as u16) << 1 | (self.write as u16) << 2
    }

    const fn union(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            write: self.write || other.write,
            create: self.create || other.create,
        }
    }
}

/// Devices that a control group may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    /// Block or character device.
    pub kind: DeviceKind,
    /// Major number.
    pub major: u32,
    /// Minor number; absent means every minor number.
    pub minor: Option<u32>,
    /// The allowed uses.
    pub access: DeviceAccess,
}

/// Character devices that every program may need: null, zero, full, random, urandom, tty, ptmx, and pseudo terminals.
pub const BASIC_DEVICES: [DeviceRule; 8] = [
    basic(1, Some(3)),
    basic(1, Some(5)),
    basic(1, Some(7)),
    basic(1, Some(8)),
    basic(1, Some(9)),
    basic(5, Some(0)),
    basic(5, Some(2)),
    basic(136, None),
];

const fn basic(major: u32, minor: Option<u32>) -> DeviceRule {
    DeviceRule { kind: DeviceKind::Character, major, minor, access: DeviceAccess::ALL }
}

impl DeviceRule {
    /// Returns the rule that lets a group read a device and, unless the use is read-only, write to the device.
    pub const fn using(kind: DeviceKind, device: Device, write: bool) -> Self {
        let access = DeviceAccess { read: true, write, create: false };
        Self { kind, major: device.major, minor: Some(device.minor), access }
    }

    const fn is_about_the_same(&self, other: &Self) -> bool {
        let same_kind = matches!(
            (self.kind, other.kind),
            (DeviceKind::Block, DeviceKind::Block) | (DeviceKind::Character, DeviceKind::Character)
        );
        let same_minor = match (self.minor, other.minor) {
            (Some(own), Some(theirs)) => own == theirs,
            (None, None) => true,
            _ => false,
        };
        same_kind && self.major == other.major && same_minor
    }
}

impl std::fmt::Display for DeviceRule {
    /// Writes the rule in the format of `devices.allow` of cgroups version 1.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Character => 'c',
        };
        write!(f, "{kind} {}:", self.major)?;
        match self.minor {
            Some(minor) => write!(f, "{minor} ")?,
            None => f.write_str("* ")?,
        }
        let letters = [(self.access.read, "r"), (self.access.write, "w"), (self.access.create, "m")];
        letters.iter().filter(|(has, _)| *has).try_for_each(|(_, letter)| f.write_str(letter))
    }
}

impl FromStr for DeviceRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Error::Malformed {
            what: format!("device rule {text:?}"),
            detail: "it is not `KIND MAJOR:MINOR USES`".into(),
        };
        let mut words = text.split(' ');
        let (Some(kind), Some(numbers), Some(uses), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(malformed());
        };
        let kind = match kind {
            "b" => DeviceKind::Block,
            "c" => DeviceKind::Character,
            _ => return Err(malformed()),
        };
        let (major, minor) = numbers.split_once(':').ok_or_else(malformed)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| malformed());
        let minor = if minor == "*" { None } else { Some(number(minor)?) };
        if uses.chars().any(|letter| !"rwm".contains(letter)) {
            return Err(malformed());
        }
        let access =
            DeviceAccess { read: uses.contains('r'), write: uses.contains('w'), create: uses.contains('m') };
        Ok(Self { kind, major: number(major)?, minor, access })
    }
}

/// Merges rules for the same devices, as the kernel does on version 1. A use that needs two kinds of access is
/// allowed if the rules for the device allow both together.
pub(super) fn merge(rules: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut merged: Vec<DeviceRule> = Vec::new();
    for rule in rules {
        match merged.iter_mut().find(|known| known.is_about_the_same(rule)) {
            Some(known) => known.access = known.access.union(rule.access),
            None => merged.push(*rule),
        }
    }
    merged
}

/// The way in which the kernel enforces device rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMechanism {
    /// The devices controller of version 1.
    Controller,
    /// A program at each group of version 2.
    Program,
}

impl std::fmt::Display for DeviceMechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Program => "program",
        })
    }
}

/// The reason that the use of devices cannot be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceRefusal {
    /// Version 1 without its controller.
    #[error("the host has no devices controller")]
    NoController,
    /// A kernel without programs for control groups.
    #[error("the kernel runs no programs for control groups (CONFIG_CGROUP_BPF)")]
    NoPrograms,
    /// Missing privileges.
    #[error("loading a program into the kernel needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN")]
    NotPermitted,
    /// A program of a group above that excludes programs of the groups below.
    #[error("a control group above has a device program that permits none below")]
    Overruled,
    /// Any other error of the kernel.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

/// An instruction of a program (`struct bpf_insn` in linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// Destination register in the lower half, source register in the upper half (little endian).
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

// Operation codes of RFC 9669. The 32 bit forms clear the upper half of the destination.
pub(super) const LOAD_WORD: u8 = 0x61;
pub(super) const MOVE: u8 = 0xbc;
pub(super) const MOVE_CONSTANT: u8 = 0xb4;
pub(super) const AND: u8 = 0x54;
pub(super) const SHIFT_RIGHT: u8 = 0x74;
pub(super) const JUMP_UNLESS_EQUAL: u8 = 0x56;
pub(super) const EXIT: u8 = 0x95;

// Offsets in `struct bpf_cgroup_dev_ctx`.
pub(super) const CONTEXT_ACCESS_AND_KIND: i16 = 0;
pub(super) const CONTEXT_MAJOR: i16 = 4;
pub(super) const CONTEXT_MINOR: i16 = 8;

/// The register of the verdict: 1 allows the use.
const VERDICT: u8 = 0;
/// The register of the context at the start, later of an intermediate value.
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// Returns the kernel's number of a kind of device (`BPF_DEVCG_DEV_*`).
pub(super) const fn kind_number(kind: DeviceKind) -> u16 {
    match kind {
        DeviceKind::Block => 1,
        DeviceKind::Character => 2,
    }
}

/// Translates rules to a program that allows the uses that a rule allows, and no others. The program tests the rules
/// in their order: kind, uses, major and minor number. A test that fails jumps to the next rule.
pub(super) fn assemble(rules: &[DeviceRule]) -> Vec<Instruction> {
    let with = |code, destination: u8, immediate: u32| Instruction {
        code,
        registers: destination,
        offset: 0,
        immediate: immediate.cast_signed(),
    };
    let load = |destination: u8, offset| Instruction {
        code: LOAD_WORD,
        registers: destination | CONTEXT << 4,
        offset,
        immediate: 0,
    };
    let copy = |destination: u8, source: u8| Instruction {
        code: MOVE,
        registers: destination | source << 4,
        offset: 0,
        immediate: 0,
    };
    let exit = |verdict| [with(MOVE_CONSTANT, VERDICT, verdict), with(EXIT, 0, 0)];
    let mut program = vec![
        load(KIND, CONTEXT_ACCESS_AND_KIND),
        load(MAJOR, CONTEXT_MAJOR),
        load(MINOR, CONTEXT_MINOR),
        copy(ACCESS, KIND),
        with(SHIFT_RIGHT, ACCESS, 16),
        with(AND, KIND, 0xffff),
    ];
    for rule in merge(rules) {
        let mut tests = vec![
            with(JUMP_UNLESS_EQUAL, KIND, kind_number(rule.kind).into()),
            copy(CONTEXT, ACCESS),
            with(AND, CONTEXT, (!rule.access.bits()).into()),
            with(JUMP_UNLESS_EQUAL, CONTEXT, 0),
            with(JUMP_UNLESS_EQUAL, MAJOR, rule.major),
        ];
        tests.extend(rule.minor.map(|minor| with(JUMP_UNLESS_EQUAL, MINOR, minor)));
        tests.extend(exit(1));
        let end = i16::try_from(tests.len()).expect("a rule has at most eight instructions");
        for (at, test) in (1..).zip(&mut tests) {
            if test.code == JUMP_UNLESS_EQUAL {
                // Counted from the instruction after the jump.
                test.offset = end - at;
            }
        }
        program.extend(tests);
    }
    program.extend(exit(0));
    program
}

#[cfg(test)]
mod tests;

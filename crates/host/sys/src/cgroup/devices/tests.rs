use super::*;
use proptest::prelude::*;

/// A use of a device.
#[derive(Clone, Copy, Debug)]
struct Use {
    kind: u16,
    access: u16,
    major: u32,
    minor: u32,
}

/// Decides by the rules themselves, as the devices controller of version 1 does.
fn is_allowed(rules: &[DeviceRule], use_: Use) -> bool {
    let about = rules.iter().filter(|rule| {
        kind_number(rule.kind) == use_.kind
            && rule.major == use_.major
            && rule.minor.is_none_or(|minor| minor == use_.minor)
    });
    let (mut one, mut any) = (None, None);
    for rule in about {
        let bits = if rule.minor.is_some() { &mut one } else { &mut any };
        *bits = Some(bits.unwrap_or(0) | rule.access.bits());
    }
    [one, any].into_iter().flatten().any(|bits| use_.access & !bits == 0)
}

/// Runs a program as the kernel does. Fails at an instruction outside the subset, at a read of a register that was not
/// written, and at a jump out of the program, all of which the kernel's verifier refuses.
fn run(program: &[Instruction], use_: Use) -> Result<u64, String> {
    let context = [u32::from(use_.access) << 16 | u32::from(use_.kind), use_.major, use_.minor];
    let mut registers: [Option<u64>; 11] = [None; 11];
    registers[1] = Some(u64::MAX);
    let mut at = 0_usize;
    for _ in 0..=program.len() {
        let instruction = program.get(at).ok_or("outside the program")?;
        let destination = usize::from(instruction.registers & 0xf);
        let source = usize::from(instruction.registers >> 4);
        let constant = instruction.immediate.cast_unsigned();
        let read = |register: usize| registers[register].ok_or(format!("register {register} is unset"));
        let low = |register: usize| read(register).map(|value| u32::try_from(value & 0xffff_ffff).unwrap());
        at += 1;
        match instruction.code {
            LOAD_WORD => {
                if read(source)? != u64::MAX {
                    return Err("a load that is not from the context".into());
                }
                let word = context[usize::try_from(instruction.offset).unwrap() / 4];
                registers[destination] = Some(word.into());
            }
            MOVE => registers[destination] = Some(low(source)?.into()),
            MOVE_CONSTANT => registers[destination] = Some(constant.into()),
            AND => registers[destination] = Some((low(destination)? & constant).into()),
            SHIFT_RIGHT => registers[destination] = Some((low(destination)? >> constant).into()),
            JUMP_UNLESS_EQUAL => {
                if low(destination)? != constant {
                    at = at.checked_add_signed(instruction.offset.into()).ok_or("before the program")?;
                }
            }
            EXIT => return read(0),
            other => return Err(format!("unknown instruction {other:#x}")),
        }
    }
    Err("no end".into())
}

fn rule() -> impl Strategy<Value = DeviceRule> {
    let kind = prop_oneof![Just(DeviceKind::Block), Just(DeviceKind::Character)];
    let number = prop_oneof![4 => 0..4_u32, 1 => any::<u32>()];
    let access = any::<(bool, bool, bool)>();
    (kind, number.clone(), proptest::option::of(number), access).prop_map(
        |(kind, major, minor, (read, write, create))| DeviceRule {
            kind,
            major,
            minor,
            access: DeviceAccess { read, write, create },
        },
    )
}

fn a_use() -> impl Strategy<Value = Use> {
    let number = prop_oneof![4 => 0..4_u32, 1 => any::<u32>()];
    (1..3_u16, 1..8_u16, number.clone(), number).prop_map(|(kind, access, major, minor)| Use {
        kind,
        access,
        major,
        minor,
    })
}

proptest! {
    #[test]
    fn a_program_decides_as_its_rules(
        rules in proptest::collection::vec(rule(), 0..12),
        uses in proptest::collection::vec(a_use(), 1..40),
    ) {
        let program = assemble(&rules);
        // Uses of exactly the devices of the rules, besides random ones.
        let of_rules = rules.iter().flat_map(|rule| (1..8).map(|access| Use {
            kind: kind_number(rule.kind),
            access,
            major: rule.major,
            minor: rule.minor.unwrap_or(7),
        }));
        for use_ in uses.into_iter().chain(of_rules) {
            let verdict = run(&program, use_).unwrap();
            prop_assert_eq!(verdict, u64::from(is_allowed(&rules, use_)), "{:?} by {:?}", use_, rules);
        }
    }

    #[test]
    fn rules_are_read_as_they_are_written(rule in rule()) {
        prop_assert_eq!(rule.to_string().parse::<DeviceRule>().unwrap(), rule);
    }
}

#[test]
fn basic_rules_have_the_words_of_version_one() {
    let words: Vec<String> = BASIC_DEVICES.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "c 1:3 rwm",
            "c 1:5 rwm",
            "c 1:7 rwm",
            "c 1:8 rwm",
            "c 1:9 rwm",
            "c 5:0 rwm",
            "c 5:2 rwm",
            "c 136:* rwm"
        ]
    );
    for bad in ["", "c 1:3", "x 1:3 r", "c 1 r", "c a:3 r", "c 1:3 rx", "c 1:3 r w"] {
        assert!(bad.parse::<DeviceRule>().is_err(), "{bad:?}");
    }
}

#[test]
fn no_rule_means_no_device() {
    let program = assemble(&[]);
    assert_eq!(program.len(), 8);
    assert_eq!(run(&program, Use { kind: 2, access: 2, major: 1, minor: 3 }), Ok(0));
}

#[test]
fn the_basic_program_is_small_and_exact() {
    let program = assemble(&BASIC_DEVICES);
    // 6 to read the context, 8 for each rule, one less for the rule without a minor number, 2 for the refusal.
    assert_eq!(program.len(), 6 + 8 * 8 - 1 + 2);
    let null = Use { kind: 2, access: 6, major: 1, minor: 3 };
    assert_eq!(run(&program, null), Ok(1));
    for refused in [Use { kind: 1, ..null }, Use { minor: 1, ..null }, Use { major: 7, ..null }] {
        assert_eq!(run(&program, refused), Ok(0), "{refused:?}");
    }
}

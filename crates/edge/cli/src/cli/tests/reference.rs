//! Checks that Nomad's commands and flags, and Caravan's additions, all exist.

use super::super::tree;

/// One command on a line, as `command subcommand: flag flag`. `node fence` is an addition.
const COMMANDS: &str = include_str!("commands.txt");

#[test]
fn every_command_of_the_reference_is_known_with_its_flags() {
    let mut tree = tree();
    tree.build();
    let mut missing = Vec::new();
    for line in COMMANDS.lines() {
        let (verbs, flags) = line.split_once(':').unwrap();
        let command = verbs.split(' ').try_fold(&tree, |command, verb| command.find_subcommand(verb));
        let Some(command) = command else {
            missing.push(verbs.to_owned());
            continue;
        };
        for flag in flags.split_whitespace() {
            let known = command.get_arguments().any(|arg| {
                arg.get_long() == Some(flag)
                    || arg.get_all_aliases().is_some_and(|all| all.contains(&flag))
                    || arg.get_short().is_some_and(|short| flag.len() == 1 && flag.starts_with(short))
            });
            if !known {
                missing.push(format!("{verbs} -{flag}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

//! The file of a writer's stamps, read also after a writer was killed within a write.
//!
//! The kernel may end a write of a killed process at the border of a page. Such a line has no end, and the first stamp of
//! the next writer follows in the same line. Example: `ID1.17 42` is torn after `ID1.17 4`, and the next writer appends
//! `ID2.18 45`: the line is `ID1.17 4ID2.18 45`. A writer with a torn line is dead, so a later stamp of it is an error.

use super::Stamp;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;

/// The length of the id of an allocation in bytes.
const ID: usize = 36;

/// Returns all stamps of a file. An unfinished last line is not a stamp yet.
pub(super) fn read(text: &str) -> Result<Vec<Stamp>> {
    let (lines, rest) = text.rsplit_once('\n').unwrap_or(("", text));
    let mut stamps: Vec<Stamp> = Vec::new();
    let mut dead: BTreeSet<(String, String)> = BTreeSet::new();
    for line in lines.lines() {
        let (torn, stamp) = split(line).with_context(|| format!("not a stamp: {line:?}"))?;
        if !torn.is_empty() {
            let owner = owner(torn, stamps.last()).with_context(|| format!("not a torn stamp: {torn:?}"))?;
            if let Some(owner) = owner {
                dead.insert((owner.alloc.clone(), owner.run.clone()));
                stamps.push(owner);
            }
        }
        let who = (stamp.alloc.clone(), stamp.run.clone());
        ensure!(!dead.contains(&who), "a writer goes on after its torn line: {line:?}");
        stamps.push(stamp);
    }
    if !rest.is_empty() {
        owner(rest, stamps.last()).with_context(|| format!("not the beginning of a stamp: {rest:?}"))?;
    }
    Ok(stamps)
}

/// Splits a line into the torn stamp at its beginning, which is usually empty, and the stamp.
fn split(line: &str) -> Result<(&str, Stamp)> {
    let (who, at) = line.rsplit_once(' ').context("no time")?;
    let (before, run) = who.rsplit_once('.').context("no run")?;
    let at_id = before.len().checked_sub(ID).filter(|at| before.is_char_boundary(*at)).context("no id")?;
    let (torn, alloc) = before.split_at(at_id);
    ensure!(alloc.bytes().all(is_of_id) && is_number(run), "no writer");
    Ok((torn, Stamp { alloc: alloc.to_owned(), run: run.to_owned(), at: at.parse()? }))
}

/// Returns the stamp that a torn line began; `None` if its writer is unknown.
fn owner(torn: &str, last: Option<&Stamp>) -> Result<Option<Stamp>> {
    let at = last.map_or(0, |last| last.at);
    if let Some(last) = last
        && format!("{}.{} ", last.alloc, last.run).starts_with(torn)
    {
        return Ok(Some(last.clone()));
    }
    let (alloc, rest) = torn.split_at_checked(ID).unwrap_or((torn, ""));
    ensure!(alloc.bytes().all(is_of_id), "no id");
    let Some(rest) = rest.strip_prefix('.') else {
        ensure!(rest.is_empty(), "no run");
        return Ok(None);
    };
    match rest.split_once(' ') {
        None if is_number(rest) || rest.is_empty() => Ok(None),
        Some((run, time)) if is_number(run) && (is_number(time) || time.is_empty()) => {
            Ok(Some(Stamp { alloc: alloc.to_owned(), run: run.to_owned(), at }))
        }
        _ => bail!("no run and time"),
    }
}

fn is_of_id(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::one_writer_at_a_time;

    const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
    const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

    /// Returns the writers of a file, by the first letter of their allocation.
    fn writers(text: &str) -> Result<String> {
        Ok(read(text)?.iter().map(|stamp| format!("{}{} ", &stamp.alloc[..1], stamp.at)).collect())
    }

    #[test]
    fn stamps_are_read() -> Result<()> {
        assert_eq!(writers(&format!("{A}.17 42\n{B}.18 45\n"))?, "a42 b45 ");
        assert_eq!(read("")?, []);
        for wrong in [format!("{A} 42\n"), format!("{A}.1\n"), "a.1 2\n".to_owned(), format!("{A}.1 x\n")] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn every_torn_line_of_a_killed_writer_is_read() -> Result<()> {
        let line = format!("{A}.17 43");
        for length in 1..=line.len() {
            let torn = &line[..length];
            let stamps = read(&format!("{A}.17 42\n{torn}{B}.18 45\n"))?;
            assert_eq!(stamps.last().map(|stamp| (&*stamp.alloc, stamp.at)), Some((B, 45)), "{torn}");
            assert_eq!(one_writer_at_a_time(&stamps), Ok(()));
            // The writer was killed within its first line.
            assert_eq!(read(&format!("{torn}{B}.18 45\n"))?.last().map(|stamp| stamp.at), Some(45), "{torn}");
            // The line may still be written.
            assert_eq!(writers(&format!("{A}.17 42\n{torn}"))?, "a42 ");
        }
        Ok(())
    }

    /// Checks that a torn line hides no other fault.
    #[test]
    fn planted_faults_are_found() -> Result<()> {
        let goes_on = format!("{A}.17 42\n{A}.17 4{B}.18 45\n{A}.17 46\n");
        assert!(read(&goes_on).unwrap_err().to_string().contains("goes on after its torn line"));
        let garbage = format!("{A}.17 42\nxyz{B}.18 45\n");
        assert!(read(&garbage).is_err());
        assert!(read(&format!("{A}.17 42\nxyz")).is_err());
        // The torn line belongs to a writer whose successor already wrote.
        let late = format!("{A}.17 42\n{B}.18 43\n{A}.17 4{B}.18 45\n");
        assert!(one_writer_at_a_time(&read(&late)?).is_err());
        Ok(())
    }
}

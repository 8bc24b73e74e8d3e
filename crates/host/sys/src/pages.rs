//! Memory of the program's own file (madvise(2), proc_pid_smaps(5)).

use crate::Error;
use crate::footprint::page_size;
use rustix::mm::{Advice, madvise};
use std::ffi::c_void;
use std::fs;

/// One mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
}

/// Unmaps the clean pages of files that this process maps without the right to write, and returns the mapped bytes.
///
/// The start of the agent touches most of the program once: flags, configuration, recovery. The kernel keeps those pages
/// mapped, and in resident memory, for as long as the process lives. A page that is used again comes back from the
/// page cache without a read from disk.
pub fn release_program() -> Result<usize, Error> {
    let text = fs::read_to_string("/proc/self/smaps").map_err(Error::path("read", "/proc/self/smaps"))?;
    let clean = clean_mappings(&text);
    let mut bytes = 0;
    for Mapping { start, end } in clean {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: the mapping is private, backed by a file, not writable, and has no private page, in memory or in
        // swap: the dropped pages are read again from the same file with the same content.
        unsafe { madvise(address, end - start, Advice::LinuxDontNeed) }
            .map_err(Error::call("release pages of the program"))?;
        bytes += end - start;
    }
    Ok(bytes)
}

/// Returns the bytes of files that are mapped in the resident memory of this process (`shared` in proc_pid_statm(5)).
pub fn resident_program() -> Result<u64, Error> {
    const PATH: &str = "/proc/self/statm";
    let text = fs::read_to_string(PATH).map_err(Error::path("read", PATH))?;
    let pages = text.split_ascii_whitespace().nth(2).and_then(|field| field.parse::<u64>().ok());
    Ok(pages.unwrap_or_default().saturating_mul(page_size()))
}

/// Selects mappings whose content is certainly that of their file. The table of relocated addresses is not writable
/// either, but has private pages: without them the program would jump to addresses of the file.
fn clean_mappings(smaps: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut lines = smaps.lines().peekable();
    while let Some(line) = lines.next() {
        let head = head(line);
        let (mut own, mut swapped) = (None, None);
        while let Some(line) = lines.next_if(|line| is_field(line)) {
            own = own.or_else(|| kib(line, "Anonymous:"));
            swapped = swapped.or_else(|| kib(line, "Swap:"));
        }
        if let (Some(mapping), Some(0), Some(0)) = (head, own, swapped) {
            found.push(mapping);
        }
    }
    found
}

/// Reads the first line of a mapping; none if the mapping is writable, shared or not that of a file.
fn head(line: &str) -> Option<Mapping> {
    let mut parts = line.split_ascii_whitespace();
    let (range, rights, _offset, _device, inode) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_clean = rights.starts_with('r') && !rights.contains('w') && rights.ends_with('p');
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    (is_clean && inode != "0").then_some(())?;
    let (start, end) = (address(start)?, address(end)?);
    (start < end).then_some(Mapping { start, end })
}

/// Returns whether a line is a field of a mapping: the lines after the first one begin with a name and a colon, and a
/// range of addresses has no colon.
fn is_field(line: &str) -> bool {
    line.split_ascii_whitespace().next().is_some_and(|name| name.ends_with(':'))
}

fn kib(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(head: &str, own: &str) -> String {
        format!("{head}\nSize:  64 kB\nRss:   64 kB\n{own}VmFlags: rd mr mw me\n")
    }

    #[test]
    fn only_pages_of_the_file_are_released() {
        let clean = "Anonymous:  0 kB\nSwap:   0 kB\n";
        let cases = [
            ("1000-2000 r-xp 00001000 08:01 7 /usr/bin/caravan", clean, true),
            ("1000-2000 r--p 00001000 08:01 7 /a path: with a colon", clean, true),
            ("1000-2000 rw-p 00001000 08:01 7 /usr/bin/caravan", clean, false),
            ("1000-2000 r--s 00001000 08:01 7 /usr/bin/caravan", clean, false),
            ("1000-2000 ---p 00001000 08:01 7 /usr/bin/caravan", clean, false),
            ("1000-2000 r-xp 00000000 00:00 0 [vdso]", clean, false),
            // Relocated addresses, in memory and in swap.
            ("1000-2000 r--p 00001000 08:01 7 /x", "Anonymous:  4 kB\nSwap:   0 kB\n", false),
            ("1000-2000 r--p 00001000 08:01 7 /x", "Anonymous:  0 kB\nSwap:   4 kB\n", false),
            ("1000-2000 r-xp 00001000 08:01 7 /x", "Anonymous:  0 kB\n", false),
            ("1000-2000 r-xp 00001000 08:01 7 /x", "", false),
        ];
        for (head, own, released) in cases {
            let found = clean_mappings(&mapping(head, own));
            let expected = Mapping { start: 0x1000, end: 0x2000 };
            assert_eq!(found, Vec::from_iter(released.then_some(expected)), "{head} {own}");
        }
        let two = mapping(cases[0].0, clean) + &mapping("3000-4000 r--p 0 08:01 7 /x", clean);
        assert_eq!(clean_mappings(&two).len(), 2);
    }

    #[test]
    fn this_process_works_after_its_pages_are_released() {
        assert!(resident_program().unwrap() > 0);
        assert!(release_program().unwrap() > 0);
        let error = "x".parse::<u8>().unwrap_err();
        assert_eq!(error.to_string(), "invalid digit found in string");
        assert!(release_program().unwrap() > 0);
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_kernel_breaks_it(text in "([0-9a-f-]{0,12} r-xp 0 0 1 x\n|Anonymous: 0 kB\n|Swap:.*\n|.*\n){0,9}") {
            let _ = clean_mappings(&text);
        }
    }
}

//! Lists of processors as the kernel and configurations write them: `0-3,8`.

use std::collections::BTreeSet;

/// A text that is not a list of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of processors such as 0-3,8")]
pub struct BadCores(String);

/// Reads a list. An empty text has no processors.
pub fn parse(text: &str) -> Result<BTreeSet<u16>, BadCores> {
    let bad = || BadCores(text.to_owned());
    let mut out = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        out.extend(first..=last);
    }
    Ok(out)
}

/// Writes a list; neighbouring processors become ranges.
pub fn format(cores: impl IntoIterator<Item = u16>) -> String {
    let sorted: BTreeSet<u16> = cores.into_iter().collect();
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for core in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let text = |(first, last): (u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_ones() {
        assert_eq!(parse("0-2,7\n").unwrap(), BTreeSet::from([0, 1, 2, 7]));
        assert_eq!(parse(" ").unwrap(), BTreeSet::new());
        assert_eq!(format([0, 1, 2, 5, 7, 6, 5]), "0-2,5-7");
        assert_eq!(format([]), "");
        for bad in ["a", "1-", "-1", "3-1", "70000", "1 2"] {
            let words = parse(bad).unwrap_err().to_string();
            assert!(words.contains(bad) && words.ends_with("is not a list of processors such as 0-3,8"));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(cores: BTreeSet<u16>) {
            prop_assert_eq!(parse(&format(cores.iter().copied())).unwrap(), cores);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,\\- a]{0,12}") {
            let _ = parse(&text);
        }
    }
}

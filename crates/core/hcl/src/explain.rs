//! The pages that explain diagnostic codes.

/// The codes and their pages, sorted.
const PAGES: &[(&str, &str)] = &[
    ("E0101", include_str!("../../../../docs/errors/E0101.md")),
    ("E0102", include_str!("../../../../docs/errors/E0102.md")),
    ("E0103", include_str!("../../../../docs/errors/E0103.md")),
    ("E0104", include_str!("../../../../docs/errors/E0104.md")),
    ("E0105", include_str!("../../../../docs/errors/E0105.md")),
    ("E0106", include_str!("../../../../docs/errors/E0106.md")),
    ("E0107", include_str!("../../../../docs/errors/E0107.md")),
    ("E0108", include_str!("../../../../docs/errors/E0108.md")),
    ("E0109", include_str!("../../../../docs/errors/E0109.md")),
    ("E0110", include_str!("../../../../docs/errors/E0110.md")),
    ("E0111", include_str!("../../../../docs/errors/E0111.md")),
    ("E0112", include_str!("../../../../docs/errors/E0112.md")),
    ("E0113", include_str!("../../../../docs/errors/E0113.md")),
    ("E0114", include_str!("../../../../docs/errors/E0114.md")),
    ("E0115", include_str!("../../../../docs/errors/E0115.md")),
    ("E0116", include_str!("../../../../docs/errors/E0116.md")),
    ("E0117", include_str!("../../../../docs/errors/E0117.md")),
    ("E0118", include_str!("../../../../docs/errors/E0118.md")),
    ("E0120", include_str!("../../../../docs/errors/E0120.md")),
    ("E0121", include_str!("../../../../docs/errors/E0121.md")),
    ("E0122", include_str!("../../../../docs/errors/E0122.md")),
    ("E0123", include_str!("../../../../docs/errors/E0123.md")),
    ("E0124", include_str!("../../../../docs/errors/E0124.md")),
    ("E0130", include_str!("../../../../docs/errors/E0130.md")),
    ("E0131", include_str!("../../../../docs/errors/E0131.md")),
    ("E0140", include_str!("../../../../docs/errors/E0140.md")),
    ("E0201", include_str!("../../../../docs/errors/E0201.md")),
    ("E0202", include_str!("../../../../docs/errors/E0202.md")),
    ("E0203", include_str!("../../../../docs/errors/E0203.md")),
    ("E0204", include_str!("../../../../docs/errors/E0204.md")),
    ("E0205", include_str!("../../../../docs/errors/E0205.md")),
    ("E0206", include_str!("../../../../docs/errors/E0206.md")),
    ("E0207", include_str!("../../../../docs/errors/E0207.md")),
    ("E0208", include_str!("../../../../docs/errors/E0208.md")),
    ("E0209", include_str!("../../../../docs/errors/E0209.md")),
    ("E0210", include_str!("../../../../docs/errors/E0210.md")),
    ("E0211", include_str!("../../../../docs/errors/E0211.md")),
    ("E0212", include_str!("../../../../docs/errors/E0212.md")),
    ("E0220", include_str!("../../../../docs/errors/E0220.md")),
    ("E0221", include_str!("../../../../docs/errors/E0221.md")),
    ("E0222", include_str!("../../../../docs/errors/E0222.md")),
    ("E0223", include_str!("../../../../docs/errors/E0223.md")),
    ("E0224", include_str!("../../../../docs/errors/E0224.md")),
    ("E0301", include_str!("../../../../docs/errors/E0301.md")),
    ("E0302", include_str!("../../../../docs/errors/E0302.md")),
    ("E0303", include_str!("../../../../docs/errors/E0303.md")),
    ("E0304", include_str!("../../../../docs/errors/E0304.md")),
    ("E0305", include_str!("../../../../docs/errors/E0305.md")),
    ("E0306", include_str!("../../../../docs/errors/E0306.md")),
    ("E0307", include_str!("../../../../docs/errors/E0307.md")),
    ("E0308", include_str!("../../../../docs/errors/E0308.md")),
    ("E0309", include_str!("../../../../docs/errors/E0309.md")),
    ("E0310", include_str!("../../../../docs/errors/E0310.md")),
    ("E0401", include_str!("../../../../docs/errors/E0401.md")),
    ("E0402", include_str!("../../../../docs/errors/E0402.md")),
    ("E0403", include_str!("../../../../docs/errors/E0403.md")),
    ("E0404", include_str!("../../../../docs/errors/E0404.md")),
    ("E0405", include_str!("../../../../docs/errors/E0405.md")),
    ("E0406", include_str!("../../../../docs/errors/E0406.md")),
    ("E0407", include_str!("../../../../docs/errors/E0407.md")),
    ("E0408", include_str!("../../../../docs/errors/E0408.md")),
    ("E0409", include_str!("../../../../docs/errors/E0409.md")),
    ("E0411", include_str!("../../../../docs/errors/E0411.md")),
    ("E0412", include_str!("../../../../docs/errors/E0412.md")),
    ("E0413", include_str!("../../../../docs/errors/E0413.md")),
    ("E0501", include_str!("../../../../docs/errors/E0501.md")),
    ("E0502", include_str!("../../../../docs/errors/E0502.md")),
    ("E0503", include_str!("../../../../docs/errors/E0503.md")),
    ("E0510", include_str!("../../../../docs/errors/E0510.md")),
    ("E0511", include_str!("../../../../docs/errors/E0511.md")),
    ("E0512", include_str!("../../../../docs/errors/E0512.md")),
    ("E0601", include_str!("../../../../docs/errors/E0601.md")),
    ("E0701", include_str!("../../../../docs/errors/E0701.md")),
];

/// Returns the page of a code such as `E0101` in Markdown. The letter's case is ignored.
#[must_use]
pub fn page(code: &str) -> Option<&'static str> {
    PAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)).map(|(_, page)| *page)
}

/// Returns all codes with the titles of their pages, sorted.
pub fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.iter().map(|(code, page)| {
        let line = page.lines().next().unwrap_or_default();
        (*code, line.split_once(": ").map_or(line, |(_, title)| title))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[expect(clippy::disallowed_methods, reason = "the source is what is tested")]
    fn codes_in(dir: &Path, out: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                codes_in(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("explain.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let codes = text.match_indices("\"E0").filter_map(|(at, _)| text.get(at + 1..at + 6));
                out.extend(codes.filter(|c| c[1..].bytes().all(|b| b.is_ascii_digit())).map(str::to_owned));
            }
        }
    }

    /// Checks that every code has a page, and every page a code.
    #[test]
    fn codes_and_pages_agree() {
        let mut used = BTreeSet::new();
        codes_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut used);
        let known: BTreeSet<String> = PAGES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert_eq!(used, known);
        for (code, page) in PAGES {
            assert!(page.starts_with(&format!("# {code}: ")), "{code}");
        }
    }

    #[test]
    fn pages_are_found() {
        assert!(page("e0101").is_some_and(|p| p.contains("comment")));
        assert_eq!(page("E9999"), None);
        assert!(titles().any(|(code, title)| code == "E0401" && title == "Unknown argument"));
    }
}

//! Matches patterns in which `*` stands for any text, including the empty one.

/// Returns whether the whole text matches the pattern. Only `*` is special.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return text.is_empty() };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("*", "dc1", true),
            ("dc1", "dc1", true),
            ("dc1", "dc12", false),
            ("dc*", "dc12", true),
            ("*1", "dc1", true),
            ("d*1", "d1", true),
            ("a*a", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("us-*-prod", "us-east-prod", true),
            ("", "", true),
            ("", "x", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_regular_expression(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let regex = regex::Regex::new(&format!("^{}$", pattern.replace('*', ".*"))).unwrap();
            prop_assert_eq!(matches(&pattern, &text), regex.is_match(&text));
        }
    }
}

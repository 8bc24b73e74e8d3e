//! Interpolates `${name}` in the texts of a running task (docs/reference/jobspec.md, section 9.1).

/// Replaces every `${name}` whose name is known and leaves all other text unchanged, including unknown names. A name
/// consists of letters, digits, `_`, `.` and `-`. Inserted values are not interpolated again.
pub fn interpolate(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match name_at(from).and_then(|name| Some((name, lookup(name)?))) {
            Some((name, value)) => {
                out.push_str(&value);
                rest = &from[name.len() + 3..];
            }
            None => {
                out.push_str("${");
                rest = &from[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Returns the names that a text refers to, in order and with duplicates.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("${").filter_map(|(at, _)| name_at(&text[at..]))
}

/// Returns the name of a reference at the beginning of the text.
fn name_at(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("${")?;
    let end = inside.find('}')?;
    let name = &inside[..end];
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (!name.is_empty() && name.chars().all(legal)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(name: &str) -> Option<String> {
        match name {
            "NOMAD_TASK_DIR" => Some("/local".into()),
            "attr.kernel.name" => Some("linux".into()),
            "loop" => Some("${loop}".into()),
            _ => None,
        }
    }

    #[test]
    fn known_names_are_replaced_and_others_stay() {
        for (text, want) in [
            ("${NOMAD_TASK_DIR}/a", "/local/a"),
            ("a ${attr.kernel.name} b ${NOMAD_TASK_DIR}", "a linux b /local"),
            ("${unknown}", "${unknown}"),
            ("${ NOMAD_TASK_DIR }", "${ NOMAD_TASK_DIR }"),
            ("$NOMAD_TASK_DIR ${", "$NOMAD_TASK_DIR ${"),
            ("${${NOMAD_TASK_DIR}}", "${/local}"),
            ("${loop}", "${loop}"),
            ("${}", "${}"),
            ("é${NOMAD_TASK_DIR}é", "é/localé"),
        ] {
            assert_eq!(interpolate(text, value), want);
        }
        assert_eq!(names("${a} ${b c} ${d-1}").collect::<Vec<_>>(), ["a", "d-1"]);
    }

    proptest! {
        #[test]
        fn text_without_known_names_is_untouched(text in ".*") {
            prop_assert_eq!(interpolate(&text, |_| None), text);
        }

        #[test]
        fn never_panics(text in "[${}a.é-]{0,20}") {
            interpolate(&text, |name| Some(name.to_owned()));
        }
    }
}

//! Ids of users that become names of directories.

/// The longest name of a file on Linux in bytes (`NAME_MAX`, path_resolution(7)).
pub const MAX_COMPONENT_BYTES: usize = 255;

/// The longest suffix that `per_alloc` adds to the source of a volume request.
pub const MAX_INDEX_SUFFIX: &str = "[4294967295]";

/// The reason that an id cannot be part of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {id:?} cannot name a directory: {problem}")]
pub struct PathError {
    /// The kind of the id, such as `volume`.
    pub what: &'static str,
    /// The id, shortened if it is too long.
    pub id: String,
    /// The problem, a clause about the id.
    pub problem: &'static str,
}

/// Checks that an id is exactly one component of a path.
///
/// # Errors
/// Returns the kind of the id and the problem.
pub fn check_component(what: &'static str, id: &str) -> Result<(), PathError> {
    check(what, id, 0, "it is longer than 255 bytes")
}

/// Checks that an id is exactly one component of a path after `per_alloc` adds the index of an allocation.
///
/// # Errors
/// Returns the kind of the id and the problem.
pub fn check_indexed_component(what: &'static str, id: &str) -> Result<(), PathError> {
    check(what, id, MAX_INDEX_SUFFIX.len(), "with the index that per_alloc adds it is longer than 255 bytes")
}

fn check(what: &'static str, id: &str, room: usize, too_long: &'static str) -> Result<(), PathError> {
    let problem = if id.is_empty() {
        "it is empty"
    } else if id == "." || id == ".." {
        "it has a meaning of its own in paths"
    } else if id.contains('/') {
        "it contains a slash"
    } else if id.contains('\0') {
        "it contains a NUL character"
    } else if id.len() + room > MAX_COMPONENT_BYTES {
        too_long
    } else {
        return Ok(());
    };
    Err(PathError { what, id: shortened(id), problem })
}

/// Returns the id, shortened for an error message.
fn shortened(id: &str) -> String {
    const SHOWN: usize = 64;
    if id.len() <= MAX_COMPONENT_BYTES {
        return id.to_owned();
    }
    let shown: String = id.chars().take(SHOWN).collect();
    format!("{shown}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_component_of_at_most_255_bytes() {
        for good in ["a", "data[0]", "..a", "a b", "\u{20ac}", &"x".repeat(255), &"\u{e9}".repeat(127)] {
            assert_eq!(check_component("id", good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256), &"\u{e9}".repeat(128)] {
            assert!(check_component("id", bad).is_err(), "{bad}");
            assert!(check_indexed_component("id", bad).is_err(), "{bad}");
        }
        let error = check_component("volume id", &"x".repeat(100_000)).unwrap_err().to_string();
        assert!(error.starts_with("volume id \"xxx") && error.ends_with("it is longer than 255 bytes"));
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn per_alloc_ids_leave_room_for_every_index() {
        assert_eq!(MAX_INDEX_SUFFIX, format!("[{}]", u32::MAX));
        assert_eq!(check_indexed_component("source", &"x".repeat(243)), Ok(()));
        let error = check_indexed_component("source", &"x".repeat(244)).unwrap_err().to_string();
        assert!(error.contains("per_alloc"), "{error}");
    }
}

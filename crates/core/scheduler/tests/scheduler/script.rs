//! Golden scripts: `tests/script/<name>.txt` and their output, `<name>.out`.
//!
//! `UPDATE_GOLDEN=1` writes the outputs again.
#![expect(clippy::disallowed_methods, reason = "the scripts are files")]

use std::path::PathBuf;

#[test]
fn scripts_print_what_they_printed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/script");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        count += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let output = caravan_sim::script::run(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let golden = path.with_extension("out");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &output).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(output, expected, "{} has another output", path.display());
    }
    assert!(count >= 8, "the scripts are not there");
}

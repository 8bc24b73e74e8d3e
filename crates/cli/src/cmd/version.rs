//! `version`

/// Returns the output of `version`.
pub(crate) fn text() -> String {
    format!("Caravan v{}", env!("CARGO_PKG_VERSION"))
}

//! `version`

/// What `version` prints.
pub(crate) fn text() -> String {
    format!("Caravan v{}", env!("CARGO_PKG_VERSION"))
}

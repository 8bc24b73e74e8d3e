//! The variable `CNI_ARGS`: pairs of names and values.

use std::collections::BTreeMap;

/// An argument that cannot be written: a separator is in its name or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid ';' character in CNI arg {0:?}")]
pub struct BadArgument(pub String);

/// The arguments of all plugins of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Returns the arguments with the permission for plugins to ignore unknown ones.
    pub fn optional() -> Self {
        Self([("IgnoreUnknown".to_owned(), "true".to_owned())].into())
    }

    /// Sets an argument, and replaces an earlier one with the same name.
    ///
    /// # Errors
    /// If the name or the value has a separator.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), BadArgument> {
        if name.contains([';', '=']) || value.contains(';') {
            return Err(BadArgument(name.to_owned()));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Returns the value of the variable.
    pub fn render(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_pairs() {
        let mut arguments = Arguments::optional();
        arguments.set("IP", "10.0.0.9/24").unwrap();
        arguments.set("IP", "10.0.0.8/24").unwrap();
        assert_eq!(arguments.render(), "IP=10.0.0.8/24;IgnoreUnknown=true");
        assert_eq!(arguments.set("A;B", "x"), Err(BadArgument("A;B".into())));
        assert!(arguments.set("A", "x;y").is_err() && arguments.set("A=B", "x").is_err());
        arguments.set("A", "x=y").unwrap();
    }
}

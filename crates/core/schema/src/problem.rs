//! The problems of a configuration.

/// A problem of a configuration. Paths name the surrounding blocks: `auth.username`, `mount[1].target`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A key that the schema does not have.
    #[error("Invalid label: No argument or block type is named {path:?}.{}", hint(near))]
    Unknown {
        /// The path of the key.
        path: String,
        /// The most similar name that the schema has here.
        near: Option<String>,
    },
    /// A required argument is not set.
    #[error("Missing required argument: The argument {path:?} is required, but no definition was found.")]
    MissingArgument {
        /// The path of the argument.
        path: String,
    },
    /// An argument has a value of the wrong type.
    #[error("Incorrect attribute value type: Inappropriate value for attribute {path:?}: {why}.")]
    WrongType {
        /// The path of the argument.
        path: String,
        /// The reason that the value has no conversion to the argument's type.
        why: String,
    },
    /// An argument is set more than once.
    #[error("Duplicate argument: The argument {path:?} is set more than once.")]
    DuplicateArgument {
        /// The path of the argument.
        path: String,
    },
    /// A required block does not exist.
    #[error("Missing block: A block {path:?} is required.")]
    MissingBlock {
        /// The path of the block.
        path: String,
    },
    /// A block exists more than once.
    #[error("Duplicate block: Only one block {path:?} is allowed.")]
    DuplicateBlock {
        /// The path of the block, including its labels.
        path: String,
    },
    /// There are too few blocks.
    #[error("Too few blocks: {path:?} has {found} block(s), but at least {least} are required.")]
    TooFewBlocks {
        /// The path of the blocks.
        path: String,
        /// The minimum number of blocks.
        least: u64,
        /// The number of blocks.
        found: usize,
    },
    /// There are too many blocks.
    #[error("Too many blocks: {path:?} has {found} block(s), but at most {most} are allowed.")]
    TooManyBlocks {
        /// The path of the blocks.
        path: String,
        /// The maximum number of blocks.
        most: u64,
        /// The number of blocks.
        found: usize,
    },
    /// The value of a block is no object.
    #[error("Incorrect value type: {path:?} is a block: an object, or a list of objects, is required.")]
    NotABlock {
        /// The path of the block.
        path: String,
    },
    /// The whole configuration is no object.
    #[error("Incorrect value type: The configuration must be an object.")]
    NotAnObject,
    /// A block with labels has an object without keys.
    #[error("Missing block label: {path:?} needs at least one key: the {label} of the block.")]
    MissingLabel {
        /// The path of the block, including the labels so far.
        path: String,
        /// The purpose of the label.
        label: String,
    },
    /// The configuration nests too deeply.
    #[error("Nesting too deep: The values of the configuration are nested too deeply.")]
    TooDeep,
    /// The configuration has too many blocks for its schema.
    #[error("Configuration too large: The configuration has too many blocks.")]
    TooLarge,
}

impl Problem {
    /// Returns the path of the problem; empty for the whole configuration.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Unknown { path, .. }
            | Self::MissingArgument { path }
            | Self::WrongType { path, .. }
            | Self::DuplicateArgument { path }
            | Self::MissingBlock { path }
            | Self::DuplicateBlock { path }
            | Self::TooFewBlocks { path, .. }
            | Self::TooManyBlocks { path, .. }
            | Self::NotABlock { path }
            | Self::MissingLabel { path, .. } => path,
            Self::NotAnObject | Self::TooDeep | Self::TooLarge => "",
        }
    }
}

/// Returns a question about a similar name, or nothing.
fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(" Did you mean {near:?}?")).unwrap_or_default()
}

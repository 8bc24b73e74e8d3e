//! Errors of filter expressions. The texts equal Nomad's if API clients rely on them.

/// The reason that an expression cannot be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is no valid expression.
    #[error("{line}:{column} ({offset}): no match found, expected: {expected}")]
    Syntax {
        /// The line of the farthest position that was parsed, from 1.
        line: usize,
        /// The character within that line, from 1.
        column: usize,
        /// The byte offset of that position.
        offset: usize,
        /// The tokens that are valid at that position.
        expected: String,
    },
    /// The text is too long.
    #[error("the expression is longer than {most} bytes")]
    TooLong {
        /// The maximum length in bytes.
        most: usize,
    },
    /// Parentheses, `not` and blocks are nested too deeply.
    #[error("the expression is nested deeper than {most} levels")]
    TooDeep {
        /// The maximum number of levels.
        most: usize,
    },
    /// A regular expression is invalid.
    #[error("failed to compile regular expression {expression:?}: {problem}")]
    Regex {
        /// The regular expression.
        expression: String,
        /// The reason.
        problem: String,
    },
    /// The object does not have the selected field.
    #[error(
        "error finding value in datum: {pointer} at part {part}: couldn't find key: struct field with name {name:?}"
    )]
    NoField {
        /// The whole selector, as a JSON pointer.
        pointer: String,
        /// The index of the missing part, from 0.
        part: usize,
        /// The name of the missing part.
        name: String,
    },
    /// A list does not have the selected element.
    #[error(
        "error finding value in datum: {pointer} at part {part}: couldn't convert {name:?} to an index below {length}"
    )]
    NoElement {
        /// The whole selector, as a JSON pointer.
        pointer: String,
        /// The index of the missing part, from 0.
        part: usize,
        /// The missing part.
        name: String,
        /// The number of elements in the list.
        length: usize,
    },
    /// The value cannot be converted to the field's type.
    #[error("error getting match value in expression: {function}: parsing {value:?}: invalid syntax")]
    Value {
        /// The Go function that parses values of the field's type.
        function: &'static str,
        /// The value in the expression.
        value: String,
    },
    /// The field's type does not support the test.
    #[error("cannot ask whether {pointer}, which is {kind}, {test}")]
    Unsuitable {
        /// The whole selector, as a JSON pointer.
        pointer: String,
        /// The type of the selected value.
        kind: &'static str,
        /// The test that was applied.
        test: &'static str,
    },
}

//! What is wrong with a filter expression. The texts that clients of the API know are theirs.

/// Why an expression cannot be parsed or asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text is no expression.
    #[error("{line}:{column} ({offset}): no match found, expected: {expected}")]
    Syntax {
        /// The line of the farthest place that made sense, from 1.
        line: usize,
        /// The character in that line, from 1.
        column: usize,
        /// The same place as bytes from the beginning.
        offset: usize,
        /// What could have been there.
        expected: String,
    },
    /// The text is too long.
    #[error("the expression is longer than {most} bytes")]
    TooLong {
        /// The bytes that it may have.
        most: usize,
    },
    /// Parentheses, `not` and blocks go too deep.
    #[error("the expression is nested deeper than {most} levels")]
    TooDeep {
        /// The levels that it may have.
        most: usize,
    },
    /// A regular expression is none.
    #[error("failed to compile regular expression {expression:?}: {problem}")]
    Regex {
        /// The regular expression.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The object has no such field.
    #[error(
        "error finding value in datum: {pointer} at part {part}: couldn't find key: struct field with name {name:?}"
    )]
    NoField {
        /// The whole selector.
        pointer: String,
        /// Which part of it, from 0.
        part: usize,
        /// That part.
        name: String,
    },
    /// A list has no such element.
    #[error(
        "error finding value in datum: {pointer} at part {part}: couldn't convert {name:?} to an index below {length}"
    )]
    NoElement {
        /// The whole selector.
        pointer: String,
        /// Which part of it, from 0.
        part: usize,
        /// That part.
        name: String,
        /// The elements that there are.
        length: usize,
    },
    /// The value is not of the field's type.
    #[error("error getting match value in expression: {function}: parsing {value:?}: invalid syntax")]
    Value {
        /// How values of the field's type are read.
        function: &'static str,
        /// The value.
        value: String,
    },
    /// The field's type cannot answer this.
    #[error("cannot ask whether {pointer}, which is {kind}, {test}")]
    Unsuitable {
        /// The whole selector.
        pointer: String,
        /// What it finds.
        kind: &'static str,
        /// What was asked.
        test: &'static str,
    },
}

//! The tables of the top level, outside the job.

use super::job::JOB;
use crate::schema::{BlockType, Content, Kind, Repeat, Schema, attr, labelled, many, one, required};

/// The top level of a job file.
pub static FILE: Schema = Schema {
    name: "file",
    attributes: &[],
    blocks: &[
        labelled("job", "Job", &JOB).doc("The job."),
        BlockType { repeat: Repeat::Many, ..one("locals", "Locals", Content::Free) }
            .doc("Names for values that the file computes."),
        labelled("variable", "Variables", &VARIABLE).doc("A value that is set from outside."),
        BlockType { repeat: Repeat::Many, ..one("variables", "Variables", Content::Free) }
            .doc("Variables by their defaults."),
    ],
    finish: None,
};

/// `variable "name" {}`. The values of its arguments are read separately.
pub static VARIABLE: Schema = Schema {
    name: "variable",
    attributes: &[
        attr("default", "Default", Kind::Str).doc("Value where none is set."),
        attr("description", "Description", Kind::Str).doc("Text for people."),
        attr("type", "Type", Kind::Str).doc("Type of the value."),
    ],
    blocks: &[many("validation", "Validation", &VALIDATION).doc("A rule for the value.")],
    finish: None,
};

/// `validation {}`.
pub static VALIDATION: Schema = Schema {
    name: "validation",
    attributes: &[
        required("condition", "Condition", Kind::Bool).doc("Whether the value is good."),
        required("error_message", "ErrorMessage", Kind::Str).doc("Text where it is not."),
    ],
    blocks: &[],
    finish: None,
};

//! Filter expressions of lists (docs/reference/http-api.md, sections 1.6 and 1.7), and the objects that they examine.

use crate::error::ApiError;
use serde_json::{Map, Value, json};

/// The filter expression of a request.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    text: String,
    inner: caravan_lang::filter::Filter,
}

impl Filter {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let inner = caravan_lang::filter::Filter::parse(text).map_err(|error| {
            ApiError::bad_request(format!(
                "failed to create result paginator: failed to read filter expression: {error}"
            ))
        })?;
        Ok(Self { text: text.to_owned(), inner })
    }

    /// Returns whether an object matches.
    pub(crate) fn matches(&self, object: &Value) -> Result<bool, ApiError> {
        let failed = |error| ApiError::bad_request(format!("failed to read result page: {error}"));
        self.inner.matches(object).map_err(failed)
    }

    /// Returns whether the expression contains a word. A caller need not compute fields that the expression does
    /// not contain.
    pub(crate) fn mentions(&self, word: &str) -> bool {
        let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        self.text.match_indices(word).any(|(at, _)| {
            !inside(self.text[..at].chars().next_back())
                && !inside(self.text[at + word.len()..].chars().next())
        })
    }
}

/// The fields that an evaluation's JSON omits if empty, with their empty values.
const EVALUATION: [(&str, Zero); 28] = [
    ("ID", Zero::Text),
    ("Namespace", Zero::Text),
    ("Priority", Zero::Number),
    ("Type", Zero::Text),
    ("TriggeredBy", Zero::Text),
    ("JobID", Zero::Text),
    ("JobModifyIndex", Zero::Number),
    ("NodeID", Zero::Text),
    ("NodeModifyIndex", Zero::Number),
    ("DeploymentID", Zero::Text),
    ("Status", Zero::Text),
    ("StatusDescription", Zero::Text),
    ("Wait", Zero::Number),
    ("WaitUntil", Zero::Null),
    ("NextEval", Zero::Text),
    ("PreviousEval", Zero::Text),
    ("BlockedEval", Zero::Text),
    ("RelatedEvals", Zero::Null),
    ("FailedTGAllocs", Zero::Null),
    ("PlanAnnotations", Zero::Null),
    ("ClassEligibility", Zero::Null),
    ("QuotaLimitReached", Zero::Text),
    ("EscapedComputedClass", Zero::Flag),
    ("AnnotatePlan", Zero::Flag),
    ("QueuedAllocations", Zero::Null),
    ("LeaderACL", Zero::Text),
    ("SnapshotIndex", Zero::Number),
    ("MissingNonNodeResources", Zero::Null),
];

/// The fields that an allocation's JSON omits if empty, with their empty values.
const ALLOCATION: [(&str, Zero); 28] = [
    ("Job", Zero::Null),
    ("TaskGroup", Zero::Text),
    ("Resources", Zero::Null),
    ("SharedResources", Zero::Null),
    ("TaskResources", Zero::Null),
    ("AllocatedResources", Zero::Null),
    ("Metrics", Zero::Null),
    ("DesiredStatus", Zero::Text),
    ("DesiredDescription", Zero::Text),
    ("DesiredTransition", Zero::Transition),
    ("ClientStatus", Zero::Text),
    ("ClientDescription", Zero::Text),
    ("TaskStates", Zero::Null),
    ("AllocStates", Zero::Null),
    ("PreviousAllocation", Zero::Text),
    ("NextAllocation", Zero::Text),
    ("DeploymentID", Zero::Text),
    ("DeploymentStatus", Zero::Null),
    ("RescheduleTracker", Zero::Null),
    ("NetworkStatus", Zero::Null),
    ("FollowupEvalID", Zero::Text),
    ("PreemptedAllocations", Zero::Null),
    ("PreemptedByAllocation", Zero::Text),
    ("SigningKeyID", Zero::Text),
    ("NodeName", Zero::Text),
    ("AllocModifyIndex", Zero::Number),
    ("CreateTime", Zero::Number),
    ("ModifyTime", Zero::Number),
];

/// The value of an empty field.
#[derive(Clone, Copy)]
enum Zero {
    Text,
    Number,
    Flag,
    Null,
    Transition,
}

impl Zero {
    fn value(self) -> Value {
        match self {
            Self::Text => json!(""),
            Self::Number => json!(0),
            Self::Flag => json!(false),
            Self::Null => Value::Null,
            Self::Transition => json!({
                "Migrate": null, "Reschedule": null, "ForceReschedule": null,
                "NoShutdownDelay": null, "MigrateDisablePlacement": null,
            }),
        }
    }
}

/// Returns an evaluation's JSON with its empty fields.
pub(crate) fn whole_evaluation(value: Value) -> Value {
    filled(value, &EVALUATION)
}

/// Returns an allocation's JSON with its empty fields.
pub(crate) fn whole_allocation(value: Value) -> Value {
    filled(value, &ALLOCATION)
}

fn filled(value: Value, fields: &[(&str, Zero)]) -> Value {
    let mut map = match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (name, zero) in fields {
        map.entry(*name).or_insert_with(|| zero.value());
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_json_leaves_out_can_be_asked_for() {
        let eval = whole_evaluation(json!({"ID": "a", "Status": "blocked"}));
        for text in ["Status == blocked and NextEval is empty", "BlockedEval == \"\"", "Wait == 0"] {
            assert!(Filter::parse(text).unwrap().matches(&eval).unwrap(), "{text}");
        }
        let alloc = whole_allocation(json!({"ID": "a"}));
        assert!(Filter::parse("DesiredTransition.Migrate is nil").unwrap().matches(&alloc).unwrap());
        let error = Filter::parse("Nope == 1").unwrap().matches(&eval).unwrap_err();
        assert_eq!(
            (error.status.as_u16(), error.message.starts_with("failed to read result page: ")),
            (400, true)
        );
        assert!(
            Filter::parse("Status =").unwrap_err().message.starts_with("failed to create result paginator: ")
        );
    }

    #[test]
    fn only_whole_words_are_mentioned() {
        let filter = Filter::parse("JobID == a and Meta.x == Job").unwrap();
        assert!(filter.mentions("JobID") && filter.mentions("Job") && !filter.mentions("Meta.y"));
        assert!(!Filter::parse("JobID == a").unwrap().mentions("Job"));
    }
}

//! Rules for parent jobs (docs/reference/jobspec.md, sections 4.4 and 6).

use super::problem::{Findings, Problem, ProblemCode as Code};
use caravan_api::JobPath;
use caravan_lang::cron::{Cron, zone};
use caravan_types::job::{Job, Parameterized, Periodic};

pub(super) fn check(job: &Job, errors: &mut Findings) {
    if let Some(rule) = &job.periodic {
        let mut found = errors.below("Periodic");
        periodic(rule, &mut found);
        errors.nest("", found);
    }
    if let Some(rule) = job.dispatch_rule() {
        let mut found = errors.below("ParameterizedJob");
        parameterized(rule, &mut found);
        errors.nest("", found);
    }
}

/// Checks a periodic block. A disabled block is not checked.
fn periodic(rule: &Periodic, errors: &mut Findings) {
    if !rule.enabled {
        return;
    }
    match (rule.spec.is_empty(), rule.specs.is_empty()) {
        (true, true) => errors.add(Code::Missing, "Specs", "Must specify a spec"),
        (false, false) => errors.add(Code::Conflict, "Spec", "Only cron or crons may be used"),
        _ => {}
    }
    if let Err(error) = zone(&rule.time_zone) {
        let text = format!("Invalid time zone \"{}\": {error}", rule.time_zone);
        errors.add(Code::InvalidTimeZone, "TimeZone", text);
    }
    if rule.spec_type != "cron" {
        let text = format!("Unknown periodic specification type \"{}\"", rule.spec_type);
        errors.add(Code::UnknownWord, "SpecType", text);
        return;
    }
    for (number, spec) in rule.expressions().enumerate() {
        if let Err(error) = Cron::parse(spec) {
            // The single expression comes before the expressions of the list.
            let at = number.checked_sub(usize::from(!rule.spec.is_empty()));
            let path = errors.path.clone();
            let path =
                at.map_or_else(|| path.clone().field("Spec"), |at| path.clone().field("Specs").index(at));
            errors.add_at(Code::InvalidCron, path, format!("Invalid cron spec \"{spec}\": {error}"));
        }
    }
}

fn parameterized(rule: &Parameterized, errors: &mut Findings) {
    if !matches!(rule.payload.as_str(), "optional" | "required" | "forbidden") {
        let text = format!("Unknown payload requirement: \"{}\"", rule.payload);
        errors.add(Code::UnknownWord, "Payload", text);
    }
    let both: Vec<&str> =
        rule.required().iter().filter(|key| rule.optional().contains(key)).map(String::as_str).collect();
    if !both.is_empty() {
        let text = format!(
            "Required and optional meta keys should be disjoint. Following keys exist in both: [{}]",
            both.join(" ")
        );
        errors.add(Code::Conflict, "MetaOptional", text);
    }
}

/// Copies the parent and the idempotency token of an existing child job, if the new specification has none.
pub fn keep_origin(old: Option<&Job>, new: &mut Job) {
    let Some(old) = old else { return };
    if new.parent_id.is_empty() {
        new.parent_id.clone_from(&old.parent_id);
    }
    if new.dispatch_idempotency_token.is_empty() {
        new.dispatch_idempotency_token.clone_from(&old.dispatch_idempotency_token);
    }
}

/// Refuses a new specification that changes an immutable setting. Only the servers set the parent of a job, because
/// the child acts for its parent.
///
/// # Errors
/// Returns the problem of the first such setting.
pub fn update(old: Option<&Job>, new: &Job) -> Result<(), Problem> {
    let immutable =
        |field, text: String| Err(Problem::new(Code::Immutable, JobPath::root().field(field), text));
    let Some(old) = old else {
        return match () {
            () if new.dispatched => {
                immutable("Dispatched", "job can't be submitted with 'Dispatched'".into())
            }
            () if !new.parent_id.is_empty() => {
                immutable("ParentID", "job can't be submitted with 'ParentID'".into())
            }
            () if !new.dispatch_idempotency_token.is_empty() => immutable(
                "DispatchIdempotencyToken",
                "job can't be submitted with 'DispatchIdempotencyToken'".into(),
            ),
            () => Ok(()),
        };
    };
    if old.kind != new.kind {
        let text = format!("cannot update job from type \"{}\" to \"{}\"", old.kind, new.kind);
        return immutable("Type", text);
    }
    let (field, text) = match (
        (old.periodic.is_some(), new.periodic.is_some()),
        (old.parameterized_job.is_some(), new.parameterized_job.is_some()),
    ) {
        ((true, false), _) => ("Periodic", "cannot update periodic job to being non-periodic"),
        ((false, true), _) => ("Periodic", "cannot update non-periodic job to being periodic"),
        (_, (true, false)) => {
            ("ParameterizedJob", "cannot update parameterized job to being non-parameterized")
        }
        (_, (false, true)) => {
            ("ParameterizedJob", "cannot update non-parameterized job to being parameterized")
        }
        _ if old.dispatched != new.dispatched => ("Dispatched", "field 'Dispatched' is read-only"),
        _ if old.parent_id != new.parent_id => ("ParentID", "field 'ParentID' is read-only"),
        _ if old.dispatch_idempotency_token != new.dispatch_idempotency_token => {
            ("DispatchIdempotencyToken", "field 'DispatchIdempotencyToken' is read-only")
        }
        _ => return Ok(()),
    };
    immutable(field, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, joined, tests::minimal};
    use caravan_types::job::JobType;
    use serde_json::json;

    fn errors(change: impl FnOnce(&mut Job)) -> String {
        let mut job = Job { kind: JobType::Batch, ..minimal() };
        change(&mut job);
        check(&job).refusal()
    }

    fn periodic(value: serde_json::Value) -> Option<Box<Periodic>> {
        let mut rule =
            json!({"Enabled": true, "Spec": "", "Specs": [], "SpecType": "cron", "TimeZone": "UTC"});
        for (key, value) in value.as_object().cloned().unwrap_or_default() {
            rule[key] = value;
        }
        Some(serde_json::from_value(rule).unwrap())
    }

    #[test]
    fn wrong_times_are_named_as_clients_know_it() {
        assert_eq!(
            errors(|job| job.periodic = periodic(json!({"Spec": "not a cron"}))),
            "1 error occurred:\n\t* 1 error occurred:\n\t* Invalid cron spec \"not a cron\": missing field(s)\n\n\n\n"
        );
        for (rule, words) in [
            (json!({}), "Must specify a spec"),
            (json!({"Spec": "@daily", "Specs": ["@daily"]}), "Only cron or crons may be used"),
            (
                json!({"Spec": "@daily", "TimeZone": "Mars"}),
                "Invalid time zone \"Mars\": unknown time zone Mars",
            ),
            (json!({"Spec": "@daily", "SpecType": "moon"}), "Unknown periodic specification type \"moon\""),
        ] {
            let text = errors(|job| job.periodic = periodic(rule));
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(errors(|job| job.periodic = periodic(json!({"Specs": ["@daily"]}))), joined(&[]));
        assert_eq!(
            errors(|job| job.periodic = periodic(json!({"Enabled": false, "Spec": "x"}))),
            joined(&[])
        );
        let service = errors(|job| {
            job.periodic = periodic(json!({"Specs": ["@daily"]}));
            job.kind = JobType::Service;
        });
        assert!(
            service.contains("Periodic can only be used with \"batch\" or \"sysbatch\" scheduler"),
            "{service}"
        );
    }

    #[test]
    fn wrong_parameters_are_named() {
        let with = |rule: serde_json::Value| {
            errors(|job| job.parameterized_job = serde_json::from_value(rule).unwrap())
        };
        assert_eq!(with(json!({"Payload": "optional", "MetaRequired": ["a"]})), joined(&[]));
        let text = with(json!({"Payload": "often", "MetaRequired": ["a", "b"], "MetaOptional": ["b"]}));
        assert!(text.contains("Unknown payload requirement: \"often\""), "{text}");
        assert!(text.contains("Following keys exist in both: [b]"), "{text}");
    }

    #[test]
    fn a_job_stays_what_it_is() {
        let plain = Job { kind: JobType::Batch, ..minimal() };
        let timed = Job { periodic: periodic(json!({"Specs": ["@daily"]})), ..plain.clone() };
        assert_eq!(update(Some(&plain), &plain), Ok(()));
        assert_eq!(update(None, &timed), Ok(()));
        assert_eq!(
            update(Some(&plain), &timed).map_err(|problem| problem.text),
            Err("cannot update non-periodic job to being periodic".to_owned())
        );
        assert_eq!(
            update(Some(&plain), &minimal()).map_err(|problem| problem.text),
            Err("cannot update job from type \"batch\" to \"service\"".to_owned())
        );
        assert!(update(None, &Job { dispatched: true, ..plain.clone() }).is_err());
        let forged = Job { parent_id: "victim".into(), ..plain.clone() };
        let token = Job { dispatch_idempotency_token: "t".into(), ..plain.clone() };
        for changed in [&forged, &token] {
            assert!(update(None, changed).is_err() && update(Some(&plain), changed).is_err());
            assert!(update(Some(changed), changed).is_ok());
            let mut again = plain.clone();
            keep_origin(Some(changed), &mut again);
            assert_eq!(again, *changed);
        }
    }
}

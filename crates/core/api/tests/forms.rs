//! Values of the wrong form in blocks of a job: refused by name, never left out.

use caravan_api as api;

fn refusal(place: &str) -> String {
    let job = format!(r#"{{"TaskGroups":[{{"Name":"g",{place}}}]}}"#);
    api::decode::<api::Job>(job.as_bytes()).expect_err("the value has the wrong form").to_string()
}

#[test]
fn a_value_of_the_wrong_form_is_refused_with_its_path() {
    for (block, path) in [
        (
            r#""Services":[{"Checks":[{"Interval":"5s"}]}]"#,
            "ServiceCheck.TaskGroups.Services.Checks.Interval",
        ),
        (r#""Scaling":{"Max":"3"}"#, "ScalingPolicy.TaskGroups.Scaling.Max"),
        (r#""Networks":[{"DNS":{"Servers":"a"}}]"#, "DNSConfig.TaskGroups.Networks.DNS.Servers"),
    ] {
        let error = refusal(block);
        assert!(error.contains(&format!("Go struct field {path} of type")), "{error}");
    }
    for (block, path) in [
        (
            r#""Resources":{"Devices":[{"Constraints":[{"LTarget":1}]}]}"#,
            "Constraint.TaskGroups.Tasks.Resources.Devices.Constraints.LTarget",
        ),
        (
            r#""Resources":{"Devices":[{"Affinities":[{"Weight":"much"}]}]}"#,
            "Affinity.TaskGroups.Tasks.Resources.Devices.Affinities.Weight",
        ),
        (r#""Templates":[{"Splay":"5s"}]"#, "Template.TaskGroups.Tasks.Templates.Splay"),
        (r#""Artifacts":[{"GetterOptions":[]}]"#, "TaskArtifact.TaskGroups.Tasks.Artifacts.GetterOptions"),
        (r#""Actions":[{"Args":"a"}]"#, "Action.TaskGroups.Tasks.Actions.Args"),
        (r#""Identities":[{"TTL":"1h"}]"#, "WorkloadIdentity.TaskGroups.Tasks.Identities.TTL"),
        (r#""DispatchPayload":{"File":1}"#, "DispatchPayloadConfig.TaskGroups.Tasks.DispatchPayload.File"),
    ] {
        let error = refusal(&format!(r#""Tasks":[{{"Name":"t",{block}}}]"#));
        assert!(error.contains(&format!("Go struct field {path} of type")), "{error}");
    }
}

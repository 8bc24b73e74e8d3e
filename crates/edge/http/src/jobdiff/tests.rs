use super::*;
use caravan_types::job::{Constraint, Task, TaskGroup};

fn sample() -> Job {
    let config = BTreeMap::from([
        ("command".to_owned(), json!("/bin/sh")),
        ("args".to_owned(), json!(["-c", "true"])),
    ]);
    let task = Task {
        name: "server".into(),
        config,
        env: BTreeMap::from([("RELEASE".to_owned(), "one".to_owned())]),
        ..Task::default()
    };
    let group = TaskGroup { name: "web".into(), count: 2, tasks: vec![task], ..TaskGroup::default() };
    Job { id: "web".into(), task_groups: vec![group], ..Job::default() }
}

fn counts(place: u64) -> Updates {
    let updates = DesiredUpdates { place, destructive_update: 2, ..DesiredUpdates::default() };
    BTreeMap::from([("web".to_owned(), updates)])
}

fn field(name: &str, kind: &str, old: &str, new: &str) -> Value {
    json!({"Annotations": null, "Name": name, "Type": kind, "Old": old, "New": new})
}

#[test]
fn equal_jobs_do_not_differ() {
    let diff = job(Some(&sample()), &sample(), Some(&counts(0)));
    assert_eq!(diff["Type"], "None");
    assert!(diff["Fields"].is_null() && diff["Objects"].is_null());
    assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Type"], "None");
    assert!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"].is_null());
}

#[test]
fn every_kind_of_change_has_its_place() {
    let mut new = sample();
    new.meta.insert("new".into(), "x".into());
    new.version = 7;
    let group = &mut new.task_groups[0];
    group.count = 3;
    group.constraints.push(Constraint {
        l_target: "${attr.kernel.name}".into(),
        r_target: "linux".into(),
        operand: "=".into(),
    });
    group.tasks[0].env.insert("RELEASE".into(), "two".into());
    group.tasks[0].config.insert("args".into(), json!(["-c", "true", "x"]));
    let diff = job(Some(&sample()), &new, Some(&counts(1)));
    assert_eq!(diff["Type"], "Edited");
    assert_eq!(diff["Fields"], json!([field("Meta[new]", "Added", "", "x")]));
    let group = &diff["TaskGroups"][0];
    assert_eq!(group["Updates"], json!({"create": 1, "create/destroy update": 2}));
    assert_eq!(group["Fields"][0]["Annotations"], json!(["forces create"]));
    assert_eq!(group["Objects"][0]["Name"], "Constraint");
    assert_eq!(group["Objects"][0]["Fields"][0], field("LTarget", "Added", "", "${attr.kernel.name}"));
    let task = &group["Tasks"][0];
    assert_eq!(task["Annotations"], json!(["forces create/destroy update"]));
    assert_eq!(task["Fields"], json!([field("Env[RELEASE]", "Edited", "one", "two")]));
    let config = &task["Objects"][0];
    assert_eq!((&config["Name"], &config["Type"]), (&json!("Config"), &json!("Edited")));
    assert_eq!(config["Fields"][2], field("args[2]", "Added", "", "x"));
    assert_eq!(config["Fields"][3], field("command", "None", "/bin/sh", "/bin/sh"));
}

#[test]
fn jobs_and_groups_come_and_go_whole() {
    let diff = job(None, &sample(), Some(&counts(2)));
    assert_eq!((&diff["Type"], &diff["ID"]), (&json!("Added"), &json!("web")));
    assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"], json!(["forces create"]));
    let count = |diff: &Value| {
        let fields = diff["TaskGroups"][0]["Fields"].as_array().cloned().unwrap();
        fields.into_iter().find(|f| f["Name"] == "Count").unwrap()["Annotations"].clone()
    };
    assert_eq!(count(&diff), json!(["forces create"]));
    let empty = Job { id: "web".into(), ..Job::default() };
    let diff = job(Some(&sample()), &empty, Some(&counts(0)));
    assert_eq!(diff["TaskGroups"][0]["Type"], "Deleted");
    assert_eq!(diff["TaskGroups"][0]["Tasks"][0]["Annotations"], json!(["forces destroy"]));
    assert_eq!(count(&diff), json!(["forces destroy"]));
}

#[test]
fn small_changes_of_a_task_stay_in_place() {
    let annotation = |change: fn(&mut Task)| {
        let mut new = sample();
        change(&mut new.task_groups[0].tasks[0]);
        job(Some(&sample()), &new, Some(&counts(0)))["TaskGroups"][0]["Tasks"][0]["Annotations"][0].clone()
    };
    assert_eq!(annotation(|task| task.kill_timeout = caravan_types::Nanos(9)), "forces in-place update");
    assert_eq!(annotation(|task| task.log_config.max_files = 3), "forces in-place update");
    assert_eq!(annotation(|task| task.log_config.disabled = true), "forces create/destroy update");
    assert_eq!(annotation(|task| task.leader = true), "forces create/destroy update");
}

#[test]
fn without_a_plan_nothing_is_annotated() {
    let mut new = sample();
    new.task_groups[0].count = 9;
    new.task_groups[0].tasks[0].leader = true;
    let diff = job(Some(&sample()), &new, None);
    let group = &diff["TaskGroups"][0];
    assert!(group["Updates"].is_null() && group["Fields"][0]["Annotations"].is_null());
    assert!(group["Tasks"][0]["Annotations"].is_null());
}

/// Returns the difference of group `g` between two jobs with these keys.
fn groups(old: Value, new: Value) -> Value {
    let whole = |mut group: Value| {
        group["Name"] = json!("g");
        let job = json!({"ID": "j", "TaskGroups": [group]});
        job.as_object().cloned().unwrap()
    };
    objects(Some(whole(old)), whole(new), None)["TaskGroups"][0].clone()
}

#[test]
fn services_are_found_again() {
    let service = |name: &str, port: &str, tag: &str| json!({"Name": name, "PortLabel": port, "Tags": [tag]});
    let kinds = |old: Value, new: Value| -> Vec<(String, String)> {
        let group = groups(json!({"Services": old}), json!({"Services": new}));
        let objects = group["Objects"].as_array().cloned().unwrap_or_default();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        objects.iter().map(|o| (text(&o["Type"]), text(&o["Fields"][0]["New"]))).collect()
    };
    let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    // The elements changed places, but not their content.
    let (a, b) = (service("a", "x", "1"), service("b", "y", "1"));
    assert_eq!(kinds(json!([a, b]), json!([b, a])), []);
    // A new name at the same port and place.
    assert_eq!(kinds(json!([a, b]), json!([service("c", "x", "1"), b])), [pair("Edited", "c")]);
    // Only the position is the same.
    assert_eq!(
        kinds(json!([a, b]), json!([service("c", "z", "1"), b])),
        [pair("Deleted", ""), pair("Added", "c")]
    );
}

#[test]
fn a_template_with_other_text_is_the_same_template() {
    let template =
        |path: &str, text: &str| json!({"DestPath": path, "EmbeddedTmpl": text, "ChangeMode": "noop"});
    let old = json!({"Tasks": [{"Name": "t", "Templates": [template("a", "1"), template("b", "1")]}]});
    let new = json!({"Tasks": [{"Name": "t", "Templates": [template("b", "2"), template("a", "1")]}]});
    let objects = groups(old, new)["Tasks"][0]["Objects"].clone();
    assert_eq!(objects.as_array().map(Vec::len), Some(1));
    assert_eq!(objects[0]["Type"], "Edited");
    assert_eq!(
        objects[0]["Fields"],
        json!([
            field("ChangeMode", "None", "noop", "noop"),
            field("DestPath", "None", "b", "b"),
            field("EmbeddedTmpl", "Edited", "1", "2"),
        ])
    );
}

fn recorded(file: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/http").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Compares recorded versions with the previous version, with a version and with a tag, as in the recordings.
#[test]
fn recorded_versions_differ_as_recorded() {
    let mut seen = 0;
    for exchange in recorded("versions.json") {
        let (versions, diffs) = (&exchange["body"]["Versions"], &exchange["body"]["Diffs"]);
        let (Some(versions), Some(diffs)) = (versions.as_array(), diffs.as_array()) else { continue };
        let query = &exchange["query"];
        let base = versions.iter().find(|v| {
            query["diff_version"].as_str().is_some_and(|n| v["Version"].as_u64() == n.parse().ok())
                || query["diff_tag"].as_str().is_some_and(|t| v["VersionTag"]["Name"] == t)
        });
        for (at, want) in diffs.iter().enumerate() {
            let old = base.or(versions.get(at + 1)).and_then(Value::as_object).cloned();
            let have = objects(old, versions[at].as_object().cloned().unwrap(), None);
            assert_eq!(have, *want, "{query} {at}");
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen}");
}

/// Compares new jobs with their recorded plans: every field of every part.
#[test]
fn recorded_plans_of_new_jobs_show_the_same() {
    let mut seen = 0;
    for exchange in recorded("plan.json") {
        let diff = &exchange["body"]["Diff"];
        if diff["Type"] != "Added" {
            continue;
        }
        let mut supplied: caravan_api::Job =
            caravan_api::from_value(&exchange["request_body"]["Job"]).unwrap();
        caravan_api::canonicalize(&mut supplied);
        let mut kept = caravan_api::convert(&supplied).unwrap();
        // Admission sets this default.
        kept.node_pool = "default".into();
        let updates: Updates =
            serde_json::from_value(exchange["body"]["Annotations"]["DesiredTGUpdates"].clone()).unwrap();
        let have = job(None, &kept, Some(&updates));
        let mut want = diff.clone();
        // The servers give every task its default identity; no other field differs.
        without_identities(&mut want);
        assert_eq!(have, want, "{}", exchange["note"]);
        seen += 1;
    }
    assert_eq!(seen, 2);
}

fn without_identities(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|i| i["Name"] != "Identity");
            items.iter_mut().for_each(without_identities);
        }
        Value::Object(map) => map.values_mut().for_each(without_identities),
        _ => {}
    }
}

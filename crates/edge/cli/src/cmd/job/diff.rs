//! Renders a difference between two versions of a job as text (docs/reference/http-api.md, section 5.6).

use caravan_sdk::{FieldDiff, JobDiff, ObjectDiff, TaskDiff, TaskGroupDiff};

/// Renders the whole difference. Without `verbose`, a part that was added or removed as a whole shows only its name.
pub(crate) fn job(diff: &JobDiff, verbose: bool) -> String {
    let mut out = vec![line(0, 0, &diff.kind, &format!("Job: \"{}\"", diff.id))];
    if diff.kind == "Edited" || verbose {
        parts(&mut out, 0, marker_width(&diff.fields, &diff.objects), &diff.fields, &diff.objects);
    }
    for (n, group) in diff.task_groups.iter().enumerate() {
        if n > 0 {
            out.push(String::new());
        }
        task_group(&mut out, group, verbose);
    }
    out.join("\n")
}

fn task_group(out: &mut Vec<String>, group: &TaskGroupDiff, verbose: bool) {
    let counts: Vec<String> = group.updates.iter().map(|(what, n)| format!("{n} {what}")).collect();
    let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
    out.push(line(0, 0, &group.kind, &format!("Task Group: \"{}\"{counts}", group.name)));
    let mut width = group.tasks.iter().map(|task| marker(&task.kind).len()).max().unwrap_or(0);
    if group.kind == "Edited" || verbose {
        width = width.max(marker_width(&group.fields, &group.objects));
        parts(out, 2, width, &group.fields, &group.objects);
    }
    for task in &group.tasks {
        one_task(out, task, width, verbose);
    }
}

fn one_task(out: &mut Vec<String>, task: &TaskDiff, width: usize, verbose: bool) {
    let notes = if task.annotations.is_empty() {
        String::new()
    } else {
        format!(" ({})", task.annotations.join(", "))
    };
    out.push(line(2, width, &task.kind, &format!("Task: \"{}\"{notes}", task.name)));
    if task.kind == "Edited" || verbose {
        parts(out, 4, marker_width(&task.fields, &task.objects), &task.fields, &task.objects);
    }
}

fn parts(out: &mut Vec<String>, indent: usize, width: usize, fields: &[FieldDiff], objects: &[ObjectDiff]) {
    let longest = fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    for field in fields {
        let pad = " ".repeat(longest - field.name.chars().count());
        let notes = if field.annotations.is_empty() {
            String::new()
        } else {
            format!(" ({})", field.annotations.join(", "))
        };
        out.push(line(indent, width, &field.kind, &format!("{}:{pad} {}{notes}", field.name, value(field))));
    }
    for object in objects {
        out.push(line(indent, width, &object.kind, &format!("{} {{", object.name)));
        let inner = marker_width(&object.fields, &object.objects);
        if object.fields.is_empty() && object.objects.is_empty() {
            out.push(String::new());
        }
        parts(out, indent + 2, inner, &object.fields, &object.objects);
        out.push(line(indent, width, "None", "}"));
    }
}

fn value(field: &FieldDiff) -> String {
    match field.kind.as_str() {
        "Edited" => format!("{:?} => {:?}", field.old, field.new),
        "Deleted" => format!("{:?}", field.old),
        _ => format!("{:?}", field.new),
    }
}

fn line(indent: usize, width: usize, kind: &str, text: &str) -> String {
    let marker = marker(kind);
    let gap = if marker.is_empty() && width == 0 { "" } else { " " };
    format!("{}{marker:>width$}{gap}{text}", " ".repeat(indent))
}

fn marker(kind: &str) -> &'static str {
    match kind {
        "Added" => "+",
        "Deleted" => "-",
        "Edited" => "+/-",
        _ => "",
    }
}

fn marker_width(fields: &[FieldDiff], objects: &[ObjectDiff]) -> usize {
    let kinds = fields.iter().map(|f| &f.kind).chain(objects.iter().map(|o| &o.kind));
    kinds.map(|kind| marker(kind).len()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_job_reads_like_the_recorded_one() {
        let diff: JobDiff = serde_json::from_str(
            r#"{"Type":"Edited","ID":"web","TaskGroups":[{"Type":"Edited","Name":"web",
            "Updates":{"canary":1,"ignore":2},
            "Objects":[{"Type":"Edited","Name":"Scaling"}],
            "Tasks":[{"Type":"Edited","Name":"server","Annotations":["forces create/destroy update"],
              "Fields":[{"Type":"Edited","Name":"Env[RELEASE]","Old":"one","New":"two"}],
              "Objects":[{"Type":"Edited","Name":"Template","Fields":[
                {"Type":"None","Name":"ChangeMode","Old":"noop","New":"noop"},
                {"Type":"None","Name":"ChangeSignal"},
                {"Type":"None","Name":"DestPath","Old":"local/index.html","New":"local/index.html"},
                {"Type":"Edited","Name":"EmbeddedTmpl","Old":"release one\n","New":"release two\n"},
                {"Type":"None","Name":"Envvars","Old":"false","New":"false"},
                {"Type":"None","Name":"ErrMissingKey","Old":"false","New":"false"},
                {"Type":"None","Name":"LeftDelim","Old":"{{","New":"{{"},
                {"Type":"None","Name":"Once","Old":"false","New":"false"},
                {"Type":"None","Name":"Perms","Old":"0644","New":"0644"},
                {"Type":"None","Name":"RightDelim","Old":"}}","New":"}}"},
                {"Type":"None","Name":"SourcePath"},
                {"Type":"None","Name":"Splay","Old":"5000000000","New":"5000000000"},
                {"Type":"None","Name":"VaultGrace","Old":"0","New":"0"}]}]}]}]}"#,
        )
        .unwrap();
        let recorded = include_str!("../../../fixtures/plan-edited.txt");
        let recorded = &recorded[..recorded.find("\n\nScheduler").unwrap()];
        assert_eq!(job(&diff, false), recorded);
    }
}

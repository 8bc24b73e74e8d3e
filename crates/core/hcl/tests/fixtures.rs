//! Tests every recorded job file of `fixtures/jobspec`. A valid file gives exactly the recorded job, including nulls;
//! an invalid one is rejected at the recorded place.

#![expect(clippy::disallowed_methods, reason = "the cases are files")]

use caravan_api as api;
use caravan_hcl::Source;
use caravan_hcl::job::{ParseOptions, VarInput, parse, parse_api_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Valid cases that do not give the recorded job yet, with the reason.
const KNOWN_GAPS: &[(&str, &str)] = &[];

/// Invalid cases whose error has another place than Nomad's, with the reason.
const OTHER_PLACE: &[(&str, &str)] = &[];

fn cases(kind: &str) -> Vec<(String, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/jobspec").join(kind);
    let mut out: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), p))
        .collect();
    out.sort();
    out
}

struct Case {
    source: Source,
    options: ParseOptions,
    json: bool,
    /// The namespaces that `-vault-namespace` and `-consul-namespace` set in the job.
    namespaces: BTreeMap<&'static str, String>,
    /// Whether a variable file is missing.
    missing_file: bool,
}

fn read(dir: &Path) -> Case {
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
    let mut case = Case {
        source: Source::new("job.nomad.hcl", text("job.nomad.hcl").unwrap()),
        options: ParseOptions {
            strict: true,
            file_functions: Some(dir.to_owned()),
            ..ParseOptions::default()
        },
        json: false,
        namespaces: BTreeMap::new(),
        missing_file: false,
    };
    for line in text("env.txt").unwrap_or_default().lines() {
        let (key, value) = line.split_once('=').unwrap();
        case.options.env.push((key.to_owned(), value.to_owned()));
    }
    let arguments = text("args.txt").unwrap_or_default();
    let mut arguments = arguments.lines();
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument, None),
        };
        let mut value = || value.or_else(|| arguments.next()).unwrap();
        match flag {
            "-var" => case.options.variables.push(VarInput::parse(value()).unwrap()),
            "-var-file" => {
                let name = value();
                match text(name) {
                    Some(content) => case.options.var_files.push(Source::new(name, content)),
                    None => case.missing_file = true,
                }
            }
            "-hcl2-strict" => case.options.strict = value() == "true",
            "-json" => case.json = true,
            "-vault-namespace" => drop(case.namespaces.insert("VaultNamespace", value().to_owned())),
            "-consul-namespace" => drop(case.namespaces.insert("ConsulNamespace", value().to_owned())),
            other => panic!("unknown argument {other}"),
        }
    }
    case
}

fn job_of(case: &Case) -> Result<api::Job, String> {
    if case.json {
        return parse_api_json(&case.source.text).map_err(|e| e.to_string());
    }
    parse(&case.source, &case.options).map(|(job, _)| job).map_err(|d| d.to_string())
}

#[test]
fn valid_files_give_the_recorded_job() {
    let mut wrong = Vec::new();
    for (name, dir) in cases("valid") {
        let case = read(&dir);
        let mut problems = Vec::new();
        match job_of(&case) {
            Err(error) => problems.push(error),
            Ok(mut job) => {
                let json = |file: &str| -> Option<Value> {
                    Some(serde_json::from_str(&std::fs::read_to_string(dir.join(file)).ok()?).unwrap())
                };
                let mut have = serde_json::to_value(&job).unwrap();
                for (key, value) in &case.namespaces {
                    have[*key] = Value::from(value.as_str());
                }
                differences("", &json("output.json").unwrap()["Job"], &have, &mut problems);
                if let Some(canonical) = json("canonical.json") {
                    api::canonicalize(&mut job);
                    differences("canonical", &canonical, &serde_json::to_value(&job).unwrap(), &mut problems);
                }
            }
        }
        let known = KNOWN_GAPS.iter().any(|(n, _)| *n == name);
        println!("{:<7} valid/{name}", if problems.is_empty() { "same" } else { "differs" });
        match (problems.is_empty(), known) {
            (true, true) => wrong.push(format!("{name} passes now: take it out of KNOWN_GAPS")),
            (false, false) => wrong.push(format!("{name}:\n  {}", problems.join("\n  "))),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_files_are_refused_at_the_recorded_place() {
    let mut wrong = Vec::new();
    for (name, dir) in cases("invalid") {
        let case = read(&dir);
        if case.missing_file || case.json {
            // These two errors occur before parsing.
            continue;
        }
        let recorded = std::fs::read_to_string(dir.join("error.txt")).unwrap();
        // The third line names the file; diagnostics follow.
        let place = |line: &str| {
            let place = line.split(": ").next()?;
            let (file, at) = place.rsplit_once(':')?;
            let named = !file.is_empty() && (!file.contains(' ') || file.starts_with("<value"));
            (named && at.contains(',')).then(|| place.to_owned())
        };
        let places: Vec<String> = recorded.lines().skip(3).filter_map(place).collect();
        let Err(error) = job_of(&case) else {
            wrong.push(format!("{name}: accepted"));
            continue;
        };
        let first = error.lines().next().unwrap_or_default();
        // The first place is that of the error itself. The places of its consequences equal Nomad's.
        let ours: Vec<String> = error.lines().filter_map(place).collect();
        let right = places.first() == ours.first().filter(|_| !places.is_empty())
            && places.iter().all(|place| ours.contains(place));
        let known = OTHER_PLACE.iter().any(|(n, _)| *n == name);
        println!("{:<7} invalid/{name}: {first}", if right { "refused" } else { "differs" });
        match (right, known) {
            (true, true) => wrong.push(format!("{name} has the place now: take it out of OTHER_PLACE")),
            (false, false) => wrong.push(format!("{name}: want {places:?}, have {error}")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn differences(path: &str, want: &Value, have: &Value, out: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => differences(&format!("{path}.{key}"), x, y, out),
                    (x, y) => out.push(format!("{path}.{key}: want {x:?}, have {y:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{i}]"), x, y, out);
            }
        }
        _ if want == have => {}
        _ if want.as_f64().is_some() && want.as_f64() == have.as_f64() => {}
        _ => out.push(format!("{path}: want {want}, have {have}")),
    }
}

/// Tests the project's example files.
#[test]
fn examples_parse() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".hcl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let source = Source::new(name.as_str(), text.as_str());
        if name.ends_with(".nomad.hcl") {
            let (mut job, warnings) =
                parse(&source, &ParseOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            assert!(warnings.items.is_empty(), "{warnings}");
            api::canonicalize(&mut job);
            api::convert(&job).unwrap_or_else(|e| panic!("{name}: {e}"));
        } else if name.starts_with("agent") {
            caravan_hcl::config::parse(&[source]).unwrap_or_else(|e| panic!("{e}"));
        } else {
            caravan_hcl::volume::parse(&text, &name).unwrap_or_else(|e| panic!("{e}"));
        }
        seen += 1;
    }
    assert!(seen >= 3, "only {seen} examples found");
}

/// Checks the output for people: the file, the line, the text and an underline.
#[test]
fn errors_show_the_source() {
    let text = "job \"a\" {\n  priorty = 50\n  type    = [1]\n  group \"g\" {\n    task \"t\" {\n      drver = \"exec\"\n    }\n  }\n}\n";
    let found = parse(&Source::new("a.nomad.hcl", text), &ParseOptions::default()).unwrap_err();
    assert_eq!(
        found.to_string(),
        "a.nomad.hcl:2,3-10: Unsupported argument; An argument named \"priorty\" is not expected here. Did you mean \"priority\"?\n\
         a.nomad.hcl:3,13-14: Unsuitable value type; Unsuitable value: string required, but have tuple\n\
         a.nomad.hcl:6,7-12: Unsupported argument; An argument named \"drver\" is not expected here. Did you mean \"driver\"?"
    );
    let shown = caravan_hcl::diag::render::pretty(&found, false);
    for part in ["[E0401] Error: Unsupported argument", "a.nomad.hcl:2:3", "priorty = 50", "───┬───"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

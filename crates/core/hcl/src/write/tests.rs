#![expect(clippy::disallowed_methods, reason = "the recorded cases are files")]

use super::*;
use crate::job::{ParseOptions, VarInput, parse, parse_api_json};
use crate::source::Source;
use proptest::prelude::*;
use serde_json::json;

/// Returns the written text, and the job that it parses to.
fn again(job: &api::Job) -> (String, api::Job) {
    let text = super::job(job).unwrap();
    let source = Source::new("written.hcl", text.as_str());
    let (read, _) = parse(&source, &ParseOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (text, read)
}

fn canonical(job: &api::Job) -> Json {
    let mut job = job.clone();
    api::canonicalize(&mut job);
    serde_json::to_value(job).unwrap()
}

fn differences(path: &str, want: &Json, have: &Json, out: &mut Vec<String>) {
    match (want, have) {
        (Json::Object(a), Json::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                differences(&format!("{path}.{key}"), &a[key.as_str()], &b[key.as_str()], out);
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{i}]"), x, y, out);
            }
        }
        _ if want == have || want.as_f64().is_some_and(|n| have.as_f64() == Some(n)) => {}
        _ => out.push(format!("{path}: want {want}, have {have}")),
    }
}

/// Tests all valid recorded files: as parsed, and in canonical form.
#[test]
fn recorded_jobs_read_back() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/jobspec/valid");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
        let api_json = read("args.txt").is_some_and(|a| a.lines().any(|l| l == "-json"));
        let supplied: Json = serde_json::from_str(&read("output.json").unwrap()).unwrap();
        let job = parse_api_json(&supplied.to_string()).unwrap();
        let mut problems = Vec::new();
        let (text, back) = again(&job);
        if !api_json {
            let (want, have) = (serde_json::to_value(&job).unwrap(), serde_json::to_value(&back).unwrap());
            differences("", &want, &have, &mut problems);
        }
        differences("canonical", &canonical(&job), &canonical(&back), &mut problems);
        let mut stored = job.clone();
        api::canonicalize(&mut stored);
        differences("stored", &canonical(&stored), &canonical(&again(&stored).1), &mut problems);
        if !problems.is_empty() {
            wrong.push(format!("{name}:\n  {}\n{text}", problems.join("\n  ")));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "{seen}");
}

#[test]
fn a_job_reads_like_one_written_by_hand() {
    let source = r#"
job "web" {
  datacenters = ["dc1"]
  meta = { "a.b" = "c" }
  group "g" {
    count = 2
    network {
      port "http" { to = 80 }
      port "admin" { static = 9000 }
    }
    constraint { distinct_hosts = true }
    task "server" {
      driver = "docker"
      config {
        image = "web:${var.tag}"
        args  = ["-p", "${NOMAD_PORT_http}", "$${var.no}"]
        mount {
          type = "bind"
        }
        labels { team = "shop" }
      }
      template {
        data        = "one\ntwo ${attr.kernel.name}\n"
        destination = "local/a"
      }
      kill_timeout = "90s"
    }
  }
}
variable "tag" { default = "1" }
"#;
    let options =
        ParseOptions { variables: vec![VarInput::parse("tag=2").unwrap()], ..ParseOptions::default() };
    let (job, _) = parse(&Source::new("web.hcl", source), &options).unwrap();
    let (text, back) = again(&job);
    assert_eq!(job, back);
    let expected = r#"job "web" {
  datacenters = ["dc1"]

  meta = {
    "a.b" = "c"
  }

  group "g" {
    count = 2

    constraint {
      distinct_hosts = true
    }

    network {
      port "admin" {
        static = 9000
      }
      port "http" {
        to = 80
      }
    }

    task "server" {
      driver       = "docker"
      kill_timeout = "1m30s"

      config {
        image = "web:2"
        args  = ["-p", "${NOMAD_PORT_http}", "$${var.no}"]
        mount {
          type = "bind"
        }
        labels {
          team = "shop"
        }
      }

      template {
        change_mode          = "restart"
        data                 = <<EOH
one
two ${attr.kernel.name}
EOH
        destination          = "local/a"
"#;
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn objects_that_are_no_blocks_stay_objects() {
    let task = json!({"Name": "t", "Driver": "x", "Config": {
        "plain": {"a": 1}, "list": [{"a": null}], "deep": [{"b": {"c": [{"d": "e"}]}}], "mixed": [1, {"a": 2}],
        "empty": [], "text": "a\nb\n"}});
    let job = json!({"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [task]}]});
    let job: api::Job = api::from_value(&job).unwrap();
    let (text, back) = again(&job);
    let config =
        |job: &api::Job| serde_json::to_value(job).unwrap()["TaskGroups"][0]["Tasks"][0]["Config"].take();
    assert_eq!(config(&job), config(&back), "{text}");
    assert!(text.contains("plain = ({"), "{text}");
}

#[test]
fn what_the_language_cannot_say_is_an_error() {
    let job = json!({"ID": "j", "TaskGroups": [{"Tasks": [{"Config": {"a b": 1}}]}]});
    let error = super::job(&api::from_value(&job).unwrap()).unwrap_err();
    assert!(error.to_string().contains("\"a b\""), "{error}");
}

/// A generator of random jobs, from the tables.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        // Lehmer's generator with a modulus of 2^31-1.
        self.0 = (self.0 % 2_147_483_646 + 1) * 48_271 % 2_147_483_647;
        usize::try_from(self.0).unwrap() % n
    }

    fn text(&mut self) -> &'static str {
        const TEXTS: [&str; 20] = [
            "",
            "a",
            "x y",
            "${attr.kernel.name}",
            "${var.x}",
            "$${a}",
            "a\nb\n",
            "EOH\n${a.b}\nEOHH\n",
            "\"\\",
            "é",
            "%{ if x }",
            "${a}}",
            "tab\t",
            "\u{7}",
            "${env[\"HOME\"]}/x",
            "$",
            "${",
            "{{ key \"a\" }}\n\n",
            "$${env.x}\n%%{\n",
            "1h",
        ];
        TEXTS[self.below(TEXTS.len())]
    }

    fn name(&mut self, odd: bool) -> String {
        const NAMES: [&str; 6] = ["a", "b-c", "d_e", "f1", "x.y", "z w"];
        NAMES[self.below(if odd { 6 } else { 4 })].to_owned()
    }

    fn number(&mut self) -> i64 {
        [0, 1, 7, 100, 1_500_000_000, 90_000_000_000][self.below(6)]
    }

    fn strings(&mut self, odd: bool) -> Object {
        (0..self.below(3)).map(|_| (self.name(odd), json!(self.text()))).collect()
    }

    fn free(&mut self, depth: usize) -> Json {
        match self.below(if depth > 2 { 4 } else { 7 }) {
            0 => json!(self.text()),
            1 => json!(self.number() - 3),
            2 => json!(self.below(2) == 0),
            3 => json!([self.text(), self.number()]),
            4 => json!([self.free_object(depth + 1), self.free_object(depth + 1)]),
            5 => Json::Object(self.free_object(depth + 1)),
            _ => json!([[self.text()], self.free(depth + 1)]),
        }
    }

    fn free_object(&mut self, depth: usize) -> Object {
        (0..self.below(3)).map(|_| (self.name(depth > 1), self.free(depth))).collect()
    }

    fn object(&mut self, schema: &'static Schema, depth: usize) -> Object {
        let mut out = Object::new();
        for attribute in schema.attributes {
            let skip = attribute.key.starts_with('~')
                || matches!((schema.name, attribute.name), ("scaling", "type") | ("job", "id" | "name"));
            if skip || (self.below(3) > 0 && !attribute.required && attribute.key != "Operand") {
                continue;
            }
            let value = match attribute.kind {
                _ if attribute.key == "Operand" => {
                    json!(["=", "version", "distinct_hosts", ">"][self.below(4)])
                }
                Kind::Str => json!(self.text()),
                Kind::Bool => json!(self.below(2) == 0),
                Kind::Int | Kind::Duration => json!(self.number()),
                Kind::Byte
                | Kind::SmallInt
                | Kind::LowByte
                | Kind::Port
                | Kind::Unsigned32
                | Kind::Unsigned => json!(self.below(100)),
                Kind::Strings => json!((0..self.below(3)).map(|_| self.text()).collect::<Vec<_>>()),
                Kind::Ports => json!([self.below(9)]),
                Kind::StringMap => Json::Object(self.strings(true)),
            };
            out.insert(attribute.key.to_owned(), value);
        }
        for block in schema.blocks {
            if block.key.starts_with('~') || (depth > 0 && self.below(4) > 0) {
                continue;
            }
            let count = if block.repeat == Repeat::One { 1 } else { 1 + self.below(2) };
            let mut made: Vec<(String, Object)> = Vec::new();
            for n in 0..count {
                let mut inner = match block.content {
                    Content::Schema(schema) => self.object(schema, depth + 1),
                    Content::Free => self.free_object(0),
                    Content::Strings => self.strings(false),
                    Content::StringsOrAttribute => self.strings(true),
                    Content::StringLists => Object::from_iter([(self.name(false), json!([self.text()]))]),
                };
                let name = format!("n{n}");
                match (schema.name, block.name) {
                    (_, "identity") => drop(inner.insert("Name".to_owned(), json!(name))),
                    ("task", "scaling") => {
                        let kind = if n == 0 { "vertical_mem" } else { "vertical_cpu" };
                        inner.insert("Type".to_owned(), json!(kind));
                    }
                    ("group", "scaling") => drop(inner.insert("Type".to_owned(), json!("horizontal"))),
                    (_, "periodic") => drop(inner.insert("SpecType".to_owned(), json!("cron"))),
                    ("spread", "target") => drop(inner.insert("Value".to_owned(), json!(name))),
                    (_, "reserved_ports") => drop(inner.insert("Label".to_owned(), json!(name))),
                    _ if !block.labels.is_empty() => drop(inner.insert("Name".to_owned(), json!(name))),
                    _ => {}
                }
                made.push((name, inner));
            }
            let value = match block.repeat {
                Repeat::One => Json::Object(made.remove(0).1),
                Repeat::Many | Repeat::Distinct => {
                    Json::Array(made.into_iter().map(|(_, o)| Json::Object(o)).collect())
                }
                Repeat::ByLabel => {
                    Json::Object(made.into_iter().map(|(n, o)| (n, Json::Object(o))).collect())
                }
            };
            out.insert(block.key.to_owned(), value);
        }
        out
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn generated_jobs_read_back(seed in any::<u64>()) {
        let mut object = Chance(seed).object(&JOB, 0);
        object.insert("ID".to_owned(), json!("a/b ${c}"));
        object.insert("Name".to_owned(), json!("another"));
        let job: api::Job = api::from_value(&Json::Object(object)).unwrap();
        let (text, back) = again(&job);
        let mut problems = Vec::new();
        differences("", &canonical(&job), &canonical(&back), &mut problems);
        prop_assert!(problems.is_empty(), "{}\n{text}", problems.join("\n"));
        // After one round trip, nothing is lost.
        prop_assert_eq!(&again(&back).1, &back);
    }
}

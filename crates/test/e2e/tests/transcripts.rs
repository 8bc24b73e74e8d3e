//! Recorded commands about jobs, run again: the same text in the same places, except ids and times.

use anyhow::{Context as _, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Output, eventually, program, workspace};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A recorded command.
#[derive(Clone, Debug, Default)]
struct Entry {
    args: Vec<String>,
    status: i32,
    stdout: String,
    stderr: String,
}

/// The required agreement of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Both outputs agree, line by line.
    Whole,
    /// Each recorded line occurs: followed output has its own pace, and Caravan reports more reasons.
    Lines,
    /// The first line of the error agrees; Caravan's error has more lines.
    FirstError,
    /// The errors begin as recorded, line by line; then Caravan shows the lines of the file.
    Errors,
    /// The keys of JSON agree.
    Keys,
    /// The exit status agrees: progress output has its own pace.
    Status,
}

/// The commands, in recorded order, with the required agreement. Other commands of the files need effects of the
/// recordings' own jobs, or differ on purpose.
const COMMANDS: &[(&str, &str, Mode)] = &[
    ("job_run", "job status", Mode::Whole),
    ("job_run", "job validate web.nomad.hcl", Mode::Whole),
    ("job_run", "job validate broken.nomad.hcl", Mode::FirstError),
    ("job_run", "job validate invalid.nomad.hcl", Mode::Errors),
    ("job_run", "job validate warn.nomad.hcl", Mode::Lines),
    ("job_run", "job run invalid.nomad.hcl", Mode::Errors),
    ("job_run", "job plan web.nomad.hcl", Mode::Whole),
    ("job_run", "job run web.nomad.hcl", Mode::Status),
    ("job_run", "job run -detach everywhere.nomad.hcl", Mode::Whole),
    ("job_run", "job run crunch.nomad.hcl", Mode::Lines),
    ("job_run", "job run -verbose sweep.nomad.hcl", Mode::Lines),
    ("job_run", "job run huge.nomad.hcl", Mode::Lines),
    ("job_run", "job plan huge.nomad.hcl", Mode::Lines),
    ("job_run", "job run -detach nightly.nomad.hcl", Mode::Whole),
    ("job_run", "job run encode.nomad.hcl", Mode::Whole),
    ("job_run", "job run -check-index 0 crunch.nomad.hcl", Mode::Whole),
    ("job_run", "job run broken.nomad.hcl", Mode::FirstError),
    ("job_run", "job run", Mode::Whole),
    ("job_run", "job run -var release=x -json web.nomad.hcl", Mode::Whole),
    ("job_run", "job run -detach -var release=two web.nomad.hcl", Mode::Whole),
    ("job_status", "job status -short web", Mode::Whole),
    ("job_status", "job status -evals -all-allocs crunch", Mode::Whole),
    ("job_status", "job status huge", Mode::Lines),
    ("job_status", "job status nightly", Mode::Whole),
    ("job_status", "job status encode", Mode::Whole),
    ("job_status", "job status nope", Mode::Whole),
    ("job_status", "job status e", Mode::Whole),
    ("job_status", "job inspect crunch", Mode::Keys),
    ("job_status", "job inspect nope", Mode::Whole),
    ("job_status", "job allocs -verbose crunch", Mode::Whole),
    ("job_status", "job deployments crunch", Mode::Whole),
    ("job_status", "job history -version 0 web", Mode::Whole),
    ("job_status", "job eval crunch", Mode::Lines),
    ("job_change", "job dispatch encode", Mode::Whole),
    ("job_change", "job dispatch crunch", Mode::Whole),
    ("job_change", "job periodic force -detach nightly", Mode::Whole),
    ("job_change", "job periodic force crunch", Mode::Whole),
    ("job_change", "job stop crunch", Mode::Lines),
    ("job_change", "job start crunch", Mode::Lines),
    ("job_change", "job stop -yes nope", Mode::Whole),
    ("job_change", "job stop", Mode::Whole),
    ("job_change", "job stop -detach everywhere", Mode::Whole),
];

fn entries(file: &str) -> Result<Vec<Entry>> {
    let path = workspace(&format!("fixtures/cli/{file}.txt"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut out: Vec<Entry> = Vec::new();
    let mut part = "";
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ nomad ") {
            if let Some(last) = out.last_mut() {
                without_note(&mut last.stdout);
                without_note(&mut last.stderr);
            }
            out.push(Entry { args: command.split(' ').map(str::to_owned).collect(), ..Entry::default() });
            part = "";
            continue;
        }
        let Some(entry) = out.last_mut() else { continue };
        if let Some(status) = line.strip_prefix("--- exit status: ") {
            entry.status = status.parse()?;
        } else if let Some(name) = line.strip_prefix("--- ") {
            part = if name == "stdout" {
                "stdout"
            } else if name == "stderr" {
                "stderr"
            } else {
                ""
            };
        } else {
            match part {
                "stdout" => writeln!(entry.stdout, "{line}")?,
                "stderr" => writeln!(entry.stderr, "{line}")?,
                _ => {}
            }
        }
    }
    Ok(out)
}

/// Removes the text after an output: a note on the next command.
fn without_note(text: &mut String) {
    if let Some(at) = text.rfind("\n# ")
        && !text[at + 1..].trim_end().contains('\n')
    {
        text.truncate(at + 1);
    }
}

/// Masks the parts that differ between two runs: ids, times, ages, indexes and widths of columns.
fn masked(text: &str) -> Vec<String> {
    let rules: [(&str, &str); 9] = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
        (r"\b[0-9a-f]{8}\b", "<id>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", "<time>"),
        (r"\b(\d+(mo|[ydhms]))+ ago\b", "<ago>"),
        (r"\((\d+[hms])+ from now\)", "(<time> from now)"),
        (r"(Modify Index:|-check-index) \d+", "$1 <n>"),
        (r"fixture-node|hostname-of-the-test", "<node>"),
        (r"\bnomad (job|namespace)\b", "caravan $1"),
        (r"(\S) {2,}", "$1  "),
    ];
    let rules =
        rules.map(|(from, to)| (regex::Regex::new(from).expect("the rule is a regular expression"), to));
    let mut out = Vec::new();
    for line in text.lines() {
        let line =
            rules.iter().fold(line.to_owned(), |line, (rule, to)| rule.replace_all(&line, *to).into_owned());
        let line = line.trim_end().to_owned();
        // The link to the web page.
        if !line.starts_with("==> View ") {
            out.push(line);
        }
    }
    without_warnings(&mut out);
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    while out.first().is_some_and(String::is_empty) {
        out.remove(0);
    }
    out
}

/// Removes the warnings about a job if Caravan has additional ones about unsupported features.
fn without_warnings(lines: &mut Vec<String>) {
    if let Some(from) = lines.iter().position(|line| line == "Job Warnings:")
        && lines.iter().any(|line| line.contains("without effect yet") || line.contains("registered nowhere"))
    {
        let last = lines[from..].iter().rposition(|line| line.starts_with("* ")).unwrap_or_default();
        lines.drain(from..=from + last);
    }
}

/// Returns all paths to keys. The servers give tasks no default identity, so its content is omitted.
fn keys(text: &str) -> Result<BTreeSet<String>> {
    fn walk(value: &serde_json::Value, path: &str, out: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    let path = format!("{path}.{key}");
                    if key != "Identity" {
                        walk(value, &path, out);
                    }
                    out.insert(path);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, path, out)),
            _ => {}
        }
    }
    let mut out = BTreeSet::new();
    walk(&serde_json::from_str(text)?, "", &mut out);
    Ok(out)
}

fn compare(mode: Mode, want: &Entry, have: &Output, node: &str) -> Result<()> {
    ensure!(have.code == want.status, "exit status {} instead of {}\n{}", have.code, want.status, have.all());
    let own = |text: &str| masked(&text.replace(node, "hostname-of-the-test"));
    let differ = |want: &[String], have: &[String]| -> Result<()> {
        ensure!(want == have, "wanted:\n{}\nhave:\n{}", want.join("\n"), have.join("\n"));
        Ok(())
    };
    match mode {
        Mode::Whole => {
            differ(&masked(&want.stdout), &own(&have.stdout))?;
            differ(&masked(&want.stderr), &own(&have.stderr))
        }
        Mode::Lines => {
            let (have, expected) = (own(&have.stdout), masked(&want.stdout));
            for line in expected.iter().filter(|line| !line.contains("status changed")) {
                ensure!(have.contains(line), "{line:?} is not in\n{}", have.join("\n"));
            }
            Ok(())
        }
        Mode::Status => Ok(()),
        Mode::FirstError => {
            let first = |lines: Vec<String>| lines.into_iter().take(1).collect::<Vec<_>>();
            differ(&first(masked(&want.stderr)), &first(own(&have.stderr)))
        }
        Mode::Errors => {
            let (want, have) = (masked(&want.stderr), own(&have.stderr));
            differ(&want, have.get(..want.len()).unwrap_or(&have))
        }
        Mode::Keys => {
            let (want, have) = (keys(&want.stdout)?, keys(&have.stdout)?);
            let missing: Vec<_> = want.difference(&have).collect();
            let more: Vec<_> = have.difference(&want).collect();
            ensure!(missing.is_empty() && more.is_empty(), "missing {missing:?}, more {more:?}");
            Ok(())
        }
    }
}

fn run(agent: &Agent, dir: &Path, args: &[String]) -> Result<Output> {
    let done = Command::new(program())
        .args(args)
        .current_dir(dir)
        .env("CARAVAN_ADDR", format!("http://{}", agent.address()))
        .env("TZ", "UTC")
        .output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Output {
        code: done.status.code().unwrap_or(-1),
        stdout: text(done.stdout),
        stderr: text(done.stderr),
    })
}

#[test]
fn commands_about_jobs_print_what_was_recorded() -> Result<()> {
    let extra = "client {\n  node_class = \"fixture\"\n}\nplugin \"mock_driver\" {\n  config {\n    enabled = true\n  }\n}\n";
    let agent = Agent::with(AgentOptions { extra: extra.to_owned(), ..AgentOptions::default() })?;
    let nodes = agent.get("/v1/nodes")?;
    let node = nodes[0]["Name"].as_str().context("the node has a name")?.to_owned();
    let dir = workspace("fixtures/cli/jobs");
    let mut wrong = Vec::new();
    for (file, command, mode) in COMMANDS {
        let args: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let recorded = entries(file)?;
        let Some(want) = recorded.iter().find(|entry| entry.args == args) else {
            bail!("{command:?} is not in {file}");
        };
        if args.last().is_some_and(|arg| arg == "crunch") && file != &"job_change" {
            // The recordings inspect the job after its task has ended.
            eventually("crunch is over", || {
                let done = agent.allocs("crunch")?.iter().all(|alloc| alloc["ClientStatus"] == "complete");
                if done { Ok(()) } else { bail!("it runs") }
            })?;
        }
        let have = run(&agent, &dir, &args)?;
        if let Err(error) = compare(*mode, want, &have, &node) {
            wrong.push(format!("$ caravan {command}\n{error}"));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} commands differ:\n\n{}",
        wrong.len(),
        COMMANDS.len(),
        wrong.join("\n\n")
    );
    Ok(())
}

/// Formats the project's job files, parses them, writes them and formats them again.
#[test]
fn files_are_formatted_as_users_ask() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let ugly = dir.path().join("ugly.nomad.hcl");
    let inner = dir.path().join("inner");
    fs::create_dir(&inner)?;
    let (text, pretty) =
        ("job \"a\" {\ntype=\"batch\" # why\n}\n", "job \"a\" {\n  type = \"batch\" # why\n}\n");
    for path in [&ugly, &inner.join("also.hcl")] {
        fs::write(path, text)?;
    }
    fs::write(dir.path().join("notes.txt"), "a=1")?;
    let fmt = |args: &[&str], input: &str| -> Result<Output> {
        use std::io::Write as _;
        let mut child = Command::new(program())
            .arg("fmt")
            .args(args)
            .current_dir(dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()?;
        child.stdin.take().context("a pipe was asked for")?.write_all(input.as_bytes())?;
        let done = child.wait_with_output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output {
            code: done.status.code().unwrap_or(-1),
            stdout: text(done.stdout),
            stderr: text(done.stderr),
        })
    };
    let listed = fmt(&["-check", "-list", "ugly.nomad.hcl"], "")?;
    ensure!((listed.code, listed.stdout.as_str()) == (1, "ugly.nomad.hcl\n"), "{}", listed.all());
    let listed = fmt(&["-write=false", "ugly.nomad.hcl"], "")?;
    ensure!((listed.code, listed.stdout.as_str()) == (0, "ugly.nomad.hcl\n"), "{}", listed.all());
    let shown = fmt(&["-write=false", "-list=false", "ugly.nomad.hcl"], "")?;
    ensure!((shown.code, shown.stdout.as_str()) == (0, pretty), "{}", shown.all());
    ensure!(fs::read_to_string(&ugly)? == text);
    let shown = fmt(&["-"], text)?;
    ensure!((shown.code, shown.stdout.as_str()) == (0, pretty), "{}", shown.all());
    ensure!(fmt(&["-check", "-"], text)?.code == 1 && fmt(&["-check", "-"], pretty)?.code == 0);
    let listed = fmt(&["-recursive", "-check"], "")?;
    ensure!(
        (listed.code, listed.stdout.as_str()) == (1, "inner/also.hcl\nugly.nomad.hcl\n"),
        "{}",
        listed.all()
    );
    fmt(&[], "")?.ok()?;
    ensure!(fs::read_to_string(&ugly)? == pretty);
    ensure!(fs::read_to_string(inner.join("also.hcl"))? == text);
    fmt(&["-recursive", "."], "")?.ok()?;
    ensure!(fmt(&["-recursive", "-check"], "")?.ok()?.stdout.is_empty());
    let broken = fmt(&["-check", "-"], "job \"broken\" {")?;
    ensure!(broken.code == 1 && broken.stderr.contains("Unclosed configuration block"), "{}", broken.all());
    Ok(())
}

/// Checks that a job is unchanged after a round trip through its generated text.
#[test]
fn a_job_can_be_written_and_run_again() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let dir = workspace("fixtures/cli/jobs");
    run(&agent, &dir, &["job", "run", "-detach", "web.nomad.hcl"].map(str::to_owned))?.ok()?;
    let kept = agent.caravan(&["job", "inspect", "-hcl", "web"])?.ok()?;
    let source = fs::read_to_string(dir.join("web.nomad.hcl"))?;
    ensure!(kept.stdout.trim_end() == source.trim_end(), "{}", kept.stdout);
    // Without stored source text, the text is generated.
    let json = agent.caravan(&["job", "inspect", "web"])?.ok()?.stdout;
    let path = agent.dir().join("web.json");
    fs::write(&path, json.replace("\"web\"", "\"again\""))?;
    agent.caravan(&["job", "run", "-detach", "-json", &path.to_string_lossy()])?.ok()?;
    let made = agent.caravan(&["job", "inspect", "-hcl", "again"])?.ok()?.stdout;
    let path = agent.dir().join("again.nomad.hcl");
    fs::write(&path, &made)?;
    let plan = agent.caravan(&["job", "plan", &path.to_string_lossy()])?;
    ensure!(plan.code == 0 && plan.stdout.starts_with("Job: \"again\"\n"), "{}\n{made}", plan.all());
    let checked = agent.caravan(&["fmt", "-check", &path.to_string_lossy()])?;
    ensure!(checked.code == 0, "{}", checked.all());
    Ok(())
}

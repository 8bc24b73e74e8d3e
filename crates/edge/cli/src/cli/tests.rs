//! Tests of the command line as typed, and of whole commands against a small agent in the same process.

mod agent;
mod reference;
mod storage;

use super::mistakes::unknown;
use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    let args = line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let mut root = tree_for(&args);
    let args = args::normalise(&root, args);
    root.try_get_matches_from_mut(args).and_then(|matches| Cli::from_arg_matches(&matches))
}

#[test]
fn the_tree_is_sound() {
    tree().debug_assert();
}

#[test]
fn the_tree_of_a_command_has_no_others() {
    let names = |line: &str| {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        tree_for(&args).get_subcommands().map(|verb| verb.get_name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("caravan job run f"), ["job"]);
    for line in ["caravan", "caravan jbo", "caravan -help", "caravan -namespace job status"] {
        assert!(names(line).len() > 40, "{line}");
    }
}

#[test]
fn the_tree_of_a_command_is_a_part_of_the_whole_tree() {
    let whole = command();
    for verb in whole.get_subcommands() {
        let args = [OsString::from("caravan"), OsString::from(verb.get_name())];
        let tree = tree_for(&args);
        let part = tree.find_subcommand(verb.get_name()).unwrap();
        assert_eq!(format!("{part:?}"), format!("{verb:?}"));
    }
}

#[test]
fn lines_that_users_of_the_reference_type_are_understood() {
    for line in [
        "caravan job run -detach -check-index 0 -var a=b -var=c=d -var-file x.vars web.nomad.hcl",
        "caravan job run -hcl2-strict=false -output -verbose -preserve-counts -eval-priority 80 -",
        "caravan job plan -diff=false -verbose web.nomad.hcl",
        "caravan job validate -diagnostics json web.nomad.hcl",
        "caravan explain E0401",
        "caravan run web.nomad.hcl -address=http://127.0.0.1:1",
        "caravan -namespace=* status",
        "caravan -namespace job status",
        "caravan fmt -check -list=false -recursive -write=false a b",
        "caravan job init -short -template=x f.hcl",
        "caravan job history -p -version 3 -diff-tag golden -full web",
        "caravan job plan -json-output -policy-override -vault-namespace v f.hcl",
        "caravan job restart -batch-size=25% -batch-wait 1m -on-error=fail -group a -task b -yes web",
        "caravan job eval -force-reschedule -detach web",
        "caravan job inspect -hcl -with-vars -version 2 web",
        "caravan job status -t {{.}} web",
        "caravan node status -t {{.}} -self",
        "caravan volume status -t={{.}} v",
        "caravan job scaling-events -verbose web",
        "caravan job stop -purge -yes -detach web db",
        "caravan node status -self -verbose -stats",
        "caravan node drain -enable -yes -detach -deadline 5s -m testing 63126d9d",
        "caravan alloc logs -stderr -n 2 -tail fee470c4",
        "caravan alloc logs -f -c 12 -tail fee470c4 talker",
        "caravan eval list -job web -per-page 2 -page-token 55.aefe",
        "caravan volume deregister -force data",
        "caravan volume explain -json data",
        "caravan volume snapshot create -parameter a=b -secret c=d -verbose data snap",
        "caravan volume snapshot list -plugin disk -secret a=b -per-page 5 -page-token x -verbose",
        "caravan volume snapshot delete -secret a=b disk snap-1",
        "caravan volume init -json -type host v.json",
        "caravan var put -force -out=none app/config user=u pass=p",
        "caravan var get -item user -out json app/config",
        "caravan var list -out terse app/",
        "caravan var purge -check-index 3 app/config",
        "caravan plugin status -type csi -verbose hostpath",
        "caravan server members -json",
        "caravan system gc",
        "caravan operator volume-check -json /var/lib/caravan",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn a_switch_can_be_turned_off() {
    let Verb::Plan(args) = parse("caravan plan -diff=false f").unwrap().verb else { panic!() };
    assert!(format!("{args:?}").contains("diff: false"));
    let Verb::Plan(args) = parse("caravan plan f").unwrap().verb else { panic!() };
    assert!(format!("{args:?}").contains("diff: true"));
}

#[test]
fn mistakes_have_their_status_and_a_suggestion() {
    let (out, _) = Out::captured();
    let status = |line: &str| {
        let mut root = tree();
        root.build();
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        mistake(&out, &path(&root, &args), &parse(line).unwrap_err())
    };
    assert_eq!(status("caravan bogus"), 127);
    assert_eq!(status("caravan"), 127);
    assert_eq!(status("caravan job bogus"), 1);
    assert_eq!(status("caravan job run -bogus f"), 1);
    assert_eq!(status("caravan job run -help"), 0);
    let root = vec!["caravan".to_owned()];
    assert_eq!(unknown(&root, "agnet"), "There is no command \"caravan agnet\". Did you mean \"agent\"?");
    let group = vec!["caravan".to_owned(), "eval".to_owned()];
    assert_eq!(
        unknown(&group, "stauts"),
        "There is no command \"caravan eval stauts\". Did you mean \"status\"?\n\"caravan eval\" has: delete, list, status"
    );
}

#[tokio::test]
async fn mistakes_name_the_argument() {
    let agent = Agent::start(|_| (500, 0, "not asked".into())).await;
    for (line, sentence) in [
        ("caravan job validate a b", "This command takes one argument: <path>; \"b\" is one too many"),
        (
            "caravan alloc logs a b c",
            "This command takes one or two arguments: <allocation> <task>; \"c\" is one too many",
        ),
        ("caravan job schema x", "This command takes no arguments; \"x\" is one too many"),
        ("caravan system gc x", "This command takes no arguments; \"x\" is one too many"),
        (
            "caravan job dispatch a b c",
            "This command takes two arguments: <job> <file>; \"c\" is one too many",
        ),
        (
            "caravan job plan -diff=perhaps f",
            "invalid value \"perhaps\" for flag -diff: use one of true, false",
        ),
        ("caravan system gc -x", "flag provided but not defined: -x"),
        (
            "caravan job validate -diagnostics=xml f",
            "invalid value \"xml\" for flag -diagnostics: use one of text, json",
        ),
        (
            "caravan operator autopilot set-config -cleanup-dead-servers=no",
            "invalid value \"no\" for flag -cleanup-dead-servers: use one of true, false",
        ),
        (
            "caravan operator root keyring rotate -prepublish=abc",
            "invalid value \"abc\" for flag -prepublish: time: invalid duration \"abc\"",
        ),
        (
            "caravan var lock -ttl=abc path program",
            "invalid value \"abc\" for flag -ttl: time: invalid duration \"abc\"",
        ),
    ] {
        let (status, _, error) = typed(&agent, line).await;
        assert_eq!((status, error.lines().next().unwrap_or_default()), (1, sentence), "{line}");
    }
    let (_, _, error) = typed(&agent, "caravan alloc logs -n abc a").await;
    assert!(error.starts_with("invalid value \"abc\" for flag -n: "), "{error}");
}

#[test]
fn hints_name_the_verb() {
    let root = tree();
    let args: Vec<OsString> = ["caravan", "-x", "job", "run", "f"].iter().map(OsString::from).collect();
    assert_eq!(path(&root, &args), ["caravan", "job", "run"]);
}

use agent::Agent;

/// Returns readers that accept one file each.
fn local() -> Local {
    Local {
        build: caravan_base::Build { version: "0", commit: "", date: "" },
        validate_config: |paths| match paths {
            [path] if path == "good.hcl" => Ok(vec!["mind the gap".to_owned()]),
            paths => Err(paths.iter().map(|path| format!("{path}: bind_addr: no")).collect()),
        },
        client_state: |path| match path.to_str() {
            Some("there") => Ok(serde_json::json!({"NodeID": "n1"})),
            _ => Err(format!("there is nothing in {}", path.display())),
        },
    }
}

/// Runs a command line; returns its exit status, standard output and standard error.
async fn typed(agent: &Agent, line: &str) -> (u8, String, String) {
    let (out, kept) = Out::captured();
    let mut args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    args.push(format!("-address={}", agent.address()).into());
    let status = Box::pin(run_with(args, out, local())).await;
    let kept = kept.lock().clone();
    (status, String::from_utf8(kept.stdout).unwrap(), String::from_utf8(kept.stderr).unwrap())
}

#[tokio::test]
async fn data_and_remarks_go_apart() {
    let agent = Agent::start(|_| (200, 1, "[]".into())).await;
    let answer = typed(&agent, "caravan volume status").await;
    let headings = "Dynamic Host Volumes\n\nContainer Storage Interface\n";
    assert_eq!(answer, (0, headings.into(), "No dynamic host volumes\nNo CSI volumes\n".into()));
    assert_eq!(typed(&agent, "caravan job status").await, (0, "No running jobs\n".into(), String::new()));
}

#[tokio::test]
async fn every_answer_can_go_through_a_template() {
    let agent = Agent::start(|_| (200, 1, r#"[{"ID":"a"},{"ID":"b"}]"#.into())).await;
    for line in ["caravan eval list -t {{range.}}{{.ID}},{{end}}", "caravan -t={{len.}} eval list"] {
        let (status, shown, error) = typed(&agent, line).await;
        if line.contains("range") {
            assert_eq!((status, shown.as_str()), (0, "a,b,\n"), "{error}");
        } else {
            assert_ne!(status, 0, "the flag belongs behind the verb");
        }
    }
    let (status, _, error) = typed(&agent, "caravan eval list -json -t {{.}}").await;
    assert_eq!((status, error.as_str()), (1, "Both json and template formatting are not allowed\n"));
    let (status, _, error) = typed(&agent, "caravan eval list -t {{.Nope}}").await;
    assert!(status == 1 && error.starts_with("Error formatting the data: "), "{error}");
}

#[tokio::test]
async fn errors_are_sentences_with_a_status() {
    let agent = Agent::start(|_| (500, 0, "No path to region".into())).await;
    let (status, _, error) = typed(&agent, "caravan job status").await;
    assert_eq!(status, 1);
    assert_eq!(error, "Error querying jobs: Unexpected response code: 500 (No path to region)\n");
    let (status, _, error) = typed(&agent, "caravan job run").await;
    assert_eq!(status, 1);
    assert_eq!(
        error,
        "This command takes one argument: <path>\nFor additional help try 'caravan job run -help'\n"
    );
    let (status, _, error) = typed(&agent, "caravan alloc status z").await;
    assert_eq!((status, error.as_str()), (1, "Identifier must contain at least two characters.\n"));
}

#[tokio::test]
async fn objects_that_are_not_there_are_named() {
    let agent = Agent::start(|_| (200, 1, "[]".into())).await;
    for (line, sentence) in [
        ("caravan job status nope", "No job(s) with prefix or ID \"nope\" found"),
        ("caravan alloc status 00000000", "No allocation(s) with prefix or id \"00000000\" found"),
        ("caravan eval status 00000000", "No evaluation(s) with prefix or id \"00000000\" found"),
        ("caravan node status 00000000", "No node(s) with prefix \"00000000\" found"),
        ("caravan plugin status nope", "Error listing plugins: no plugins with prefix or ID \"nope\" found"),
        ("caravan volume status nope", "Error listing volumes: no volumes with prefix or ID \"nope\" found"),
        ("caravan status zzzz", "Unable to resolve ID: \"zzzz\""),
    ] {
        assert_eq!(typed(&agent, line).await, (1, String::new(), format!("{sentence}\n")), "{line}");
    }
}

#[tokio::test]
async fn several_matches_are_listed() {
    let jobs = r#"[{"ID":"encode","Type":"batch","Priority":50,"Status":"running","ParameterizedJob":true},
        {"ID":"everywhere","Type":"system","Priority":50,"Status":"running"}]"#;
    let agent = Agent::start(move |_| (200, 1, jobs.into())).await;
    let (status, data, error) = typed(&agent, "caravan job status e").await;
    assert_eq!((status, data.as_str()), (1, ""));
    assert!(error.starts_with("Prefix \"e\" matched multiple jobs\n\nID          Type"), "{error}");
}

#[tokio::test]
async fn a_job_is_registered_and_followed_until_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.json");
    std::fs::write(&file, r#"{"Job":{"ID":"web","Type":"service"}}"#).unwrap();
    let alloc = |status: &str| {
        format!(
            r#"[{{"ID":"59017f05-ce1f","NodeID":"63126d9d-dd5a","TaskGroup":"g","ClientStatus":"{status}",
            "ClientDescription":"Tasks are running","CreateIndex":9}}]"#
        )
    };
    let agent = Agent::start(move |uri| match uri {
        uri if uri.starts_with("PUT /v1/jobs?") => (200, 7, r#"{"EvalID":"d3afc5b0-1be8"}"#.into()),
        uri if uri.contains("/allocations?index=") => (200, 12, alloc("running")),
        uri if uri.contains("/allocations") => (200, 10, alloc("pending")),
        uri if uri.contains("index=7") => (200, 9, r#"{"ID":"d3","JobID":"web","Status":"complete"}"#.into()),
        _ => (200, 7, r#"{"ID":"d3","JobID":"web","Status":"pending"}"#.into()),
    })
    .await;
    let (status, data, error) = typed(&agent, &format!("caravan job run -json {}", file.display())).await;
    assert_eq!((status, error.as_str()), (0, ""), "{data}");
    let reported: Vec<&str> =
        data.lines().map(|line| line.split_once("Z: ").map_or(line, |(_, text)| text)).collect();
    assert_eq!(
        reported,
        [
            "Monitoring evaluation \"d3afc5b0\"",
            "Evaluation triggered by job \"web\"",
            "Allocation \"59017f05\" created: node \"63126d9d\", group \"g\"",
            "Evaluation status changed: \"pending\" -> \"complete\"",
            "Evaluation \"d3afc5b0\" finished with status \"complete\"",
            "Allocation \"59017f05\" status changed: \"pending\" -> \"running\" (Tasks are running)",
        ]
    );
}

#[tokio::test]
async fn a_job_that_cannot_be_placed_ends_with_two_and_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("writer.json");
    std::fs::write(&file, r#"{"ID":"writer","Type":"service"}"#).unwrap();
    let agent = Agent::start(|uri| match uri {
        uri if uri.starts_with("PUT /v1/jobs?") => (200, 7, r#"{"EvalID":"d3afc5b0-1be8"}"#.into()),
        uri if uri.contains("/allocations") => (200, 10, "[]".into()),
        uri if uri.contains("7502bada") => (
            200,
            9,
            r#"{"ID":"7502bada","Status":"blocked","MissingNonNodeResources":["csi-claim:default:data"]}"#.into(),
        ),
        _ => (
            200,
            7,
            r#"{"ID":"d3","JobID":"writer","Status":"complete","BlockedEval":"7502bada","FailedTGAllocs":{"g":
            {"NodesEvaluated":1,"ConstraintFiltered":{"CSI volume data has exhausted its available writer claims":1}}}}"#
                .into(),
        ),
    })
    .await;
    let (status, data, _) = typed(&agent, &format!("caravan run -json {}", file.display())).await;
    assert_eq!(status, 2);
    assert!(data.contains("CSI volume data has exhausted its available writer claims"), "{data}");
    assert!(data.contains("Waiting for a claim on volume \"data\" in namespace \"default\""), "{data}");
}

#[tokio::test]
async fn logs_are_data_and_a_conflict_is_told() {
    let agent = Agent::start(|uri| match uri {
        uri if uri.contains("/fs/logs/") => (200, 0, r#"{"Data":"b25lCnR3bwp0aHJlZQo=","Offset":14}"#.into()),
        uri if uri.contains("/v1/allocation/") => {
            (200, 1, r#"{"ID":"fee470c4-aa","TaskStates":{"t":{"State":"running"}}}"#.into())
        }
        _ => (200, 1, r#"[{"ID":"fee470c4-aa","ClientStatus":"running"}]"#.into()),
    })
    .await;
    assert_eq!(typed(&agent, "caravan alloc logs -tail -n 2 fee470c4").await.1, "two\nthree\n");
    assert_eq!(typed(&agent, "caravan alloc logs -stderr fee470c4").await.1, "one\ntwo\nthree\n");
    let (status, data, error) = typed(&agent, "caravan logs -stdout -stderr fee470c4").await;
    assert_eq!((status, data.as_str(), error.as_str()), (0, "one\ntwo\nthree\n", "one\ntwo\nthree\n"));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.json");
    std::fs::write(&file, r#"{"ID":"a"}"#).unwrap();
    let refusing =
        Agent::start(|_| (500, 0, "Enforcing job modify index 0: job already exists".into())).await;
    let line = format!("caravan job run -json -check-index 0 {}", file.display());
    let (status, _, error) = typed(&refusing, &line).await;
    assert_eq!(status, 1);
    assert_eq!(error, "Enforcing job modify index 0: job already exists\nJob not updated\n");
    let (status, ..) = typed(&refusing, &format!("caravan plan -json {}", file.display())).await;
    assert_eq!(status, 255);
}

#[tokio::test]
async fn files_of_agents_are_read_without_an_agent() {
    let agent = Agent::start(|_| (500, 0, "nobody asks".into())).await;
    assert_eq!(
        typed(&agent, "caravan config validate good.hcl").await,
        (0, "Configuration is valid!\n".into(), "WARNING: mind the gap\n".into())
    );
    let (status, _, error) = typed(&agent, "caravan config validate bad.hcl").await;
    assert_eq!((status, error.as_str()), (1, "1 error occurred:\n\t* bad.hcl: bind_addr: no\n"));
    let (status, _, error) = typed(&agent, "caravan config validate").await;
    assert!(status == 1 && error.starts_with("Must specify at least one config file"), "{error}");
    let (status, data, _) = typed(&agent, "caravan operator client-state there").await;
    assert!(status == 0 && data.contains("\"NodeID\": \"n1\""), "{data}");
    let (status, _, error) = typed(&agent, "caravan operator client-state nowhere").await;
    assert_eq!(
        (status, error.as_str()),
        (1, "Error reading the client's state: there is nothing in nowhere\n")
    );
    for verb in ["info", "logs", "state"] {
        let (status, _, error) = typed(&agent, &format!("caravan operator raft {verb} /nonexistent")).await;
        assert!(status == 1 && error.contains("there is no server's state in /nonexistent"), "{error}");
    }
}

#[tokio::test]
async fn what_is_not_built_says_so() {
    let refused = "Nomad Enterprise only endpoint";
    let agent = Agent::start(move |_| (501, 0, refused.into())).await;
    for line in [
        "caravan quota apply spec.hcl",
        "caravan quota inspect -json q",
        "caravan recommendation list -job web",
        "caravan recommendation apply -detach a b",
        "caravan sentinel read -raw p",
        "caravan license get -stale",
        "caravan operator utilization -message m",
        "caravan operator snapshot agent file.hcl",
    ] {
        let (status, data, error) = typed(&agent, line).await;
        assert!(status == 1 && data.is_empty() && error.contains(refused), "{line}: {error}");
    }
    for (line, name) in [("caravan setup consul -y", "Consul"), ("caravan setup vault -check", "Vault")] {
        let (status, _, error) = typed(&agent, line).await;
        assert_eq!(status, 1);
        assert_eq!(error, format!("This build does not talk to {name} yet: nothing was set up.\n"));
    }
}

#[tokio::test]
async fn groups_name_what_they_have_and_old_names_still_work() {
    let agent = Agent::start(|_| (200, 1, "[]".into())).await;
    let (status, data, error) = typed(&agent, "caravan node stauts").await;
    assert_eq!(status, 1);
    assert!(data.contains("Usage: caravan node") && error.contains("Did you mean \"status\"?"), "{error}");
    assert!(error.contains("\"caravan node\" has: config, drain, "), "{error}");
    let (status, data, error) = typed(&agent, "caravan operator raft").await;
    assert!(status == 1 && data.contains("list-peers") && error.is_empty(), "{data}");
    let (status, data, error) = typed(&agent, "caravan node-status").await;
    assert_eq!((status, data.as_str()), (0, "No nodes registered\n"));
    assert_eq!(error, "\"caravan node-status\" is an old name of \"caravan node status\"\n");
}

#[tokio::test]
async fn the_kept_log_and_the_servers_of_a_node_are_shown() {
    let agent = Agent::start(|uri| match uri {
        uri if uri.starts_with("GET /v1/agent/monitor/export?") && uri.contains("on_disk=true") => {
            (200, 0, r#"{"Data":"b25lCg==","FileEvent":"log","Offset":4}"#.into())
        }
        uri if uri.contains("service_name=caravan") && uri.contains("logs_since=1h") => {
            (200, 0, r#"{"Data":"dHdvCg==","FileEvent":"log","Offset":4}"#.into())
        }
        "GET /v1/agent/servers" => (200, 0, r#"["127.0.0.1:4647"]"#.into()),
        uri if uri.contains("PUT /v1/agent/servers?address=a%3A1&address=b%3A2") => (200, 0, String::new()),
        uri => (400, 0, uri.to_owned()),
    })
    .await;
    let shown = |line: &'static str| typed(&agent, line);
    assert_eq!(shown("caravan monitor export -on-disk").await, (0, "one\n".into(), String::new()));
    assert_eq!(
        shown("caravan monitor export -service-name caravan -log-since 1h").await,
        (0, "two\n".into(), String::new())
    );
    for line in
        ["caravan monitor export", "caravan monitor export -on-disk -service-name x", "caravan monitor x"]
    {
        assert_eq!(shown(line).await.0, 1, "{line}");
    }
    assert_eq!(shown("caravan node config -servers").await, (0, "127.0.0.1:4647\n".into(), String::new()));
    assert_eq!(
        shown("caravan node config -update-servers a:1 b:2").await,
        (0, "Updated server list\n".into(), String::new())
    );
    assert_eq!(shown("caravan node config").await.0, 1);
}

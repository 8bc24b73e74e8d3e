//! Access control from the bootstrap token to the workload that reads its own variable, and
//! the restoration of a snapshot.

use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Call, Output, Reply, eventually};
use serde_json::{Value, json};
use std::fs;

/// An agent with access control, and its bootstrap token.
pub struct Guarded {
    pub agent: Agent,
    pub root: String,
}

impl Guarded {
    /// Starts an agent with server and client, and waits until its node is ready.
    pub fn start() -> Result<Self> {
        Self::start_ready("")
    }

    /// Starts an agent as [`Guarded::start`], whose tokens may end after a second.
    pub fn start_with_short_tokens() -> Result<Self> {
        Self::start_ready("  token_min_expiration_ttl = \"1s\"\n")
    }

    fn start_ready(acl: &str) -> Result<Self> {
        let guarded = Self::start_with(acl, AgentOptions::default())?;
        eventually("the node to be ready", || {
            let nodes = guarded.as_root("GET", "/v1/nodes", None)?.json()?;
            if nodes[0]["Status"] == "ready" { Ok(()) } else { bail!("{nodes}") }
        })?;
        Ok(guarded)
    }

    /// Starts an agent with these options.
    pub fn start_as(options: AgentOptions) -> Result<Self> {
        Self::start_with("", options)
    }

    /// Starts an agent with these options and settings of the block `acl`.
    fn start_with(acl: &str, options: AgentOptions) -> Result<Self> {
        let extra = format!("acl {{\n  enabled = true\n{acl}}}\n");
        let agent = Agent::launch(AgentOptions { extra, ..options })?;
        let mut root = String::new();
        eventually("the first token", || {
            let made = agent.caravan(&["acl", "bootstrap", "-json"])?.ok()?;
            let token: Value = serde_json::from_str(&made.stdout).context(made.stdout)?;
            root = token["SecretID"].as_str().context("no secret")?.to_owned();
            Ok(())
        })?;
        Ok(Self { agent, root })
    }

    pub fn call(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        self.call_at(&self.agent, token, method, path, body)
    }

    /// Sends a request to another agent.
    pub fn call_at(
        &self,
        agent: &Agent,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply> {
        agent.send(&Call {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("X-Nomad-Token".to_owned(), token.to_owned())],
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            patience: None,
        })
    }

    pub fn as_root(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        self.call(&self.root, method, path, body)
    }

    /// Runs a command with a token.
    pub fn verb(&self, token: &str, args: &[&str]) -> Result<Output> {
        let token = format!("-token={token}");
        let mut args = args.to_vec();
        // Options precede positional arguments.
        let at = args.iter().position(|arg| arg.contains('/') || arg.starts_with('-')).unwrap_or(args.len());
        args.insert(at, &token);
        self.agent.caravan(&args)
    }

    /// Stops all jobs and waits for the ends of their allocations.
    fn stop_all(&self) -> Result<()> {
        let jobs = self.as_root("GET", "/v1/jobs?namespace=*", None)?.json()?;
        for job in jobs.as_array().into_iter().flatten() {
            let (id, namespace) = (job["ID"].as_str(), job["Namespace"].as_str());
            let (id, namespace) = (id.context("no id")?, namespace.context("no namespace")?);
            self.as_root("DELETE", &format!("/v1/job/{id}?namespace={namespace}"), None)?;
        }
        eventually("all allocations to end", || {
            let allocs = self.as_root("GET", "/v1/allocations?namespace=*", None)?.json()?;
            let live = |alloc: &&Value| matches!(alloc["ClientStatus"].as_str(), Some("running" | "pending"));
            let live = allocs.as_array().into_iter().flatten().filter(live).count();
            if live == 0 { Ok(()) } else { bail!("{live} run") }
        })
    }

    /// Creates a token with one policy.
    pub fn token(&self, policy: &str, rules: &str) -> Result<String> {
        let body = json!({"Name": policy, "Rules": rules});
        let made = self.as_root("PUT", &format!("/v1/acl/policy/{policy}"), Some(&body))?;
        ensure!(made.status == 200, "{made:?}");
        let body = json!({"Name": policy, "Type": "client", "Policies": [policy]});
        let token = self.as_root("PUT", "/v1/acl/token", Some(&body))?.json()?;
        Ok(token["SecretID"].as_str().context("no secret")?.to_owned())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Best effort: tasks outlive agents, and agents cannot stop jobs without a token.
        let _ = self.stop_all();
    }
}

fn job(id: &str, namespace: &str, script: &str, more: &str) -> String {
    format!(
        "job \"{id}\" {{\n namespace = \"{namespace}\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n {more}\n kill_timeout = \"1s\"\n resources {{\n cpu = 20\n memory = 16\n }}\n }}\n }}\n}}\n"
    )
}

#[test]
fn a_token_may_what_its_policies_say_and_nothing_else() -> Result<()> {
    let guarded = Guarded::start()?;
    guarded.agent.caravan(&["acl", "bootstrap"])?.failed()?;
    for path in ["/v1/jobs", "/v1/nodes", "/v1/vars", "/v1/namespaces", "/v1/acl/tokens", "/v1/agent/self"] {
        let nobody = guarded.agent.request("GET", path, None)?;
        let hidden = nobody.status == 200 && nobody.text() == "[]";
        ensure!(nobody.status == 403 || nobody.status == 400 || hidden, "{path}: {nobody:?}");
        let wrong = guarded.call("5a1a6ad5-0000-4a4e-9e3a-2f1a6d2bb6c9", "GET", path, None)?;
        ensure!(wrong.status == 403, "{path}: {wrong:?}");
    }
    guarded.verb(&guarded.root, &["namespace", "apply", "-description=ours", "team"])?.ok()?;
    let writer = guarded.token("team-write", "namespace \"team\" {\n policy = \"write\"\n}\n")?;
    let reader = guarded.token("team-read", "namespace \"team\" {\n policy = \"read\"\n}\n")?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = guarded.agent.dir().join(format!("{name}.nomad.hcl"));
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let ours = file("ours", &job("ours", "team", "sleep 600", ""))?;
    let theirs = file("theirs", &job("theirs", "default", "sleep 600", ""))?;
    guarded.verb(&reader, &["job", "run", "-detach", &ours])?.failed()?;
    guarded.verb(&writer, &["job", "run", "-detach", &theirs])?.failed()?;
    guarded.verb(&writer, &["job", "run", "-detach", &ours])?.ok()?;
    let seen = guarded.call(&reader, "GET", "/v1/jobs?namespace=*", None)?.json()?;
    ensure!(seen.as_array().is_some_and(|list| list.len() == 1 && list[0]["ID"] == "ours"), "{seen}");
    let other = guarded.call(&reader, "GET", "/v1/job/ours", None)?;
    ensure!(other.status == 403, "{other:?}");
    let stop = guarded.call(&reader, "DELETE", "/v1/job/ours?namespace=team", None)?;
    ensure!(stop.status == 403, "{stop:?}");
    let full = guarded.as_root("DELETE", "/v1/namespace/team", None)?;
    ensure!(full.status == 400 || full.status == 500, "a namespace with jobs was removed: {full:?}");
    guarded.verb(&writer, &["job", "stop", "-detach", "-namespace=team", "ours"])?.ok()?;
    Ok(())
}

#[test]
fn a_workload_reads_its_own_variable_and_no_other() -> Result<()> {
    let guarded = Guarded::start()?;
    for (path, value) in [("nomad/jobs/reads", "mine"), ("secret", "theirs")] {
        let body = json!({"Path": path, "Items": {"word": value}});
        let put = guarded.as_root("PUT", &format!("/v1/var/{path}"), Some(&body))?;
        ensure!(put.status == 200, "{put:?}");
    }
    let text = job(
        "reads",
        "default",
        "cat $NOMAD_SECRETS_DIR/nomad_token > $NOMAD_ALLOC_DIR/token; test \"$NOMAD_TOKEN\" = \"$(cat $NOMAD_SECRETS_DIR/nomad_token)\" && echo same; sleep 600",
        "identity {\n env = true\n file = true\n }",
    );
    let path = guarded.agent.dir().join("reads.nomad.hcl");
    fs::write(&path, text)?;
    guarded.verb(&guarded.root, &["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
    let mut alloc = String::new();
    eventually("the workload to run", || {
        let list = guarded.as_root("GET", "/v1/job/reads/allocations", None)?.json()?;
        ensure!(list[0]["ClientStatus"] == "running", "{list}");
        alloc = id_of(&list[0])?;
        Ok(())
    })?;
    let mut token = String::new();
    eventually("the workload's token", || {
        let logs =
            format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&origin=start&follow=false");
        let reported = guarded.as_root("GET", &logs, None)?.text();
        ensure!(reported.contains("same"), "{reported:?}");
        token = guarded.as_root("GET", &format!("/v1/client/fs/cat/{alloc}?path=alloc/token"), None)?.text();
        Ok(())
    })?;
    ensure!(token.split('.').count() == 3, "{token:?}");
    let mine = guarded.call(&token, "GET", "/v1/var/nomad/jobs/reads", None)?.json()?;
    ensure!(mine["Items"]["word"] == "mine", "{mine}");
    for (method, path) in
        [("GET", "/v1/var/secret"), ("GET", "/v1/jobs"), ("DELETE", "/v1/var/nomad/jobs/reads")]
    {
        let other = guarded.call(&token, method, path, None)?;
        ensure!(other.status == 403 || other.text() == "[]", "{method} {path}: {other:?}");
    }
    // The keys that verify such tokens are public.
    let keys = guarded.agent.get("/.well-known/jwks.json")?;
    ensure!(keys["keys"].as_array().is_some_and(|keys| !keys.is_empty()), "{keys}");
    Ok(())
}

#[test]
fn what_was_saved_comes_back() -> Result<()> {
    let guarded = Guarded::start()?;
    guarded.verb(&guarded.root, &["namespace", "apply", "-description=kept", "kept"])?.ok()?;
    let reader = guarded.token("look", "operator {\n policy = \"read\"\n}\n")?;
    let file = guarded.agent.dir().join("state.snap").to_string_lossy().into_owned();
    guarded.verb(&reader, &["operator", "snapshot", "save", &file])?.failed()?;
    guarded.verb(&guarded.root, &["operator", "snapshot", "save", &file])?.ok()?;
    guarded.agent.caravan(&["operator", "snapshot", "inspect", &file])?.ok()?;
    guarded.verb(&guarded.root, &["namespace", "delete", "kept"])?.ok()?;
    guarded.verb(&guarded.root, &["namespace", "apply", "-description=new", "later"])?.ok()?;
    guarded.verb(&guarded.root, &["operator", "snapshot", "restore", &file])?.ok()?;
    let names = guarded.as_root("GET", "/v1/namespaces", None)?.json()?;
    let names: Vec<&str> =
        names.as_array().into_iter().flatten().filter_map(|n| n["Name"].as_str()).collect();
    ensure!(names == ["default", "kept"], "{names:?}");
    let still = guarded.call(&reader, "GET", "/v1/operator/scheduler/configuration", None)?;
    ensure!(still.status == 200, "{still:?}");
    Ok(())
}

#[test]
fn a_file_on_the_server_resets_the_bootstrap_once() -> Result<()> {
    let guarded = Guarded::start()?;
    let again = || guarded.agent.request("POST", "/v1/acl/bootstrap", None);
    let done = again()?;
    let text = done.text();
    let index = text.split("reset index: ").nth(1).and_then(|rest| rest.split(')').next());
    let index = index.with_context(|| format!("status {}: {text}", done.status))?;
    ensure!(done.status == 400, "{done:?}");

    let file = guarded.agent.data_dir().join("server/acl-bootstrap-reset");
    fs::write(&file, "1")?;
    let wrong = again()?;
    let reported = format!("Invalid bootstrap reset index (specified 1, reset index: {index})");
    ensure!((wrong.status, wrong.text().trim()) == (400, reported.as_str()), "{wrong:?}");

    fs::write(&file, index)?;
    let reset = again()?;
    ensure!(reset.status == 200, "{reset:?}");
    let secret = reset.json()?["SecretID"].as_str().context("no secret")?.to_owned();
    ensure!(guarded.call(&secret, "GET", "/v1/acl/tokens", None)?.status == 200);
    // The first token stays valid; the file was for one bootstrap only.
    ensure!(guarded.as_root("GET", "/v1/acl/tokens", None)?.status == 200);
    ensure!(again()?.status == 400, "the file must not count twice");
    Ok(())
}

//! Directories of tasks: links that a task plants never redirect root, and an unusable path is named.

use crate::{id_of, run_job};
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, Answer, WebServer, eventually};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory of root outside all allocations, with a file in it.
struct Canary(PathBuf);

impl Canary {
    fn new(agent: &Agent, name: &str) -> Result<Self> {
        // Tasks of other users must traverse the directory.
        fs::set_permissions(agent.dir(), fs::Permissions::from_mode(0o755))?;
        let dir = agent.dir().join(name);
        fs::create_dir_all(dir.join("sub"))?;
        fs::write(dir.join("file"), "precious content")?;
        for (path, mode) in [("sub", 0o750), ("file", 0o640), (".", 0o700)] {
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode))?;
        }
        Ok(Self(dir))
    }

    fn check(&self) -> Result<()> {
        for (path, mode) in [(".", 0o700), ("sub", 0o750), ("file", 0o640)] {
            let meta = fs::symlink_metadata(self.0.join(path))?;
            let seen = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
            ensure!(seen == (0, 0, mode), "{path} of the canary is {seen:?}");
        }
        ensure!(fs::read_to_string(self.0.join("file"))? == "precious content", "the canary was written to");
        ensure!(fs::read_dir(&self.0)?.count() == 2 && fs::read_dir(self.0.join("sub"))?.count() == 0);
        Ok(())
    }
}

/// A script that plants links and files at every place that root uses, and ends; its second run keeps running.
const PLANT: &str = r#"
T=$${NOMAD_TASK_DIR%/local}; A=$NOMAD_ALLOC_DIR; L=$NOMAD_TASK_DIR; S=$NOMAD_SECRETS_DIR
if [ -e $A/data/planted ]; then
  echo second run; cat $L/conf $L/deep/conf $L/input $L/art/plain $L/vol/content
  cat $L/id > /dev/null && echo identity; cat $S/nomad_token > /dev/null && echo token; exec sleep 600
fi
touch $A/data/planted
for d in $L $T/tmp $S $T/private $A/data $A/logs $A/tmp; do
  mv $d $d.away 2>/dev/null && { echo moved $d; ln -s $CANARY $d; }
  rmdir $d 2>/dev/null && { echo removed $d; ln -s $CANARY $d; }
done
for f in nomad_token .nomad_token.tmp api.sock .api; do
  rm -rf $S/$f; ln -s $CANARY/file $S/$f; ln $CANARY/file $S/$f.hard 2>/dev/null
done
rm -rf $L/conf $L/input $L/id; ln -s $CANARY/file $L/conf; ln -s ../../../$CANARY/new $L/input; mkfifo $L/id
ln -s $CANARY/file $L/.conf.tmp
# Directories below local may be moved: what root writes goes to those that are there, by descriptor.
mv $L/deep $L/deep.away; mkdir $L/deep; ln -s $CANARY/file $L/deep/conf
mv $L/art $L/art.away; mkdir $L/art; ln -s $CANARY/file $L/art/plain
mv $L/vol $L/vol.away 2>/dev/null && echo moved a volume
for n in 1 2 3 4 5 6 7 8 9; do
  case $((n % 3)) in
    0) ln -s $CANARY/new $A/logs/t.stdout.$n ;;
    1) mkfifo $A/logs/t.stdout.$n ;;
    2) ln -s $CANARY/file $A/logs/t.stdout.$n ;;
  esac
  ln -s $CANARY/new $A/logs/t.stderr.$n
done
i=0; while [ $i -lt 30000 ]; do echo "line $i ........................................................................"; i=$((i+1)); done
exit 1
"#;

/// The blocks of a job in addition to its script.
#[derive(Default)]
struct Blocks {
    job: String,
    group: String,
    task: String,
}

impl Blocks {
    /// Returns blocks for all kinds of files that root writes into the directories of a task.
    fn all(artifact: &str) -> Self {
        let job = "parameterized {\n payload = \"required\"\n }".to_owned();
        let group = "ephemeral_disk {\n sticky = true\n size = 100\n }\n\
                     volume \"h\" {\n type = \"host\"\n source = \"h\"\n }";
        let task = format!(
            r#"
      dispatch_payload {{
        file = "input"
      }}
      identity {{
        name     = "renewed"
        aud      = ["test"]
        file     = true
        filepath = "local/id"
        ttl      = "1h"
      }}
      template {{
        destination = "local/deep/conf"
        change_mode = "noop"
        data        = "deep\n"
      }}
      artifact {{
        source      = "{artifact}"
        destination = "local/art"
      }}
      volume_mount {{
        volume      = "h"
        destination = "${{NOMAD_TASK_DIR}}/vol"
      }}
"#
        );
        Self { job, group: group.to_owned(), task }
    }
}

/// Dispatches a job with a payload. Returns the id of the child job.
fn dispatch(agent: &Agent, job: &str) -> Result<String> {
    let body = json!({ "Payload": "cGF5bG9hZAo=" });
    let reply = agent.request("POST", &format!("/v1/job/{job}/dispatch"), Some(&body))?;
    let id = reply.json()?["DispatchedJobID"].as_str().map(str::to_owned);
    id.with_context(|| reply.text())
}

/// Starts a server of one artifact. Returns the server and its address.
fn artifact() -> Result<(WebServer, String)> {
    let server = WebServer::start(None, |_| Answer::good("artifact\n"))?;
    let source = format!("http://{}/plain", server.address());
    Ok((server, source))
}

fn planting_job(
    id: &str,
    driver: &str,
    user: &str,
    script: &str,
    canary: &Path,
    Blocks { job, group, task }: &Blocks,
) -> String {
    let user = if user.is_empty() { String::new() } else { format!("user = \"{user}\"") };
    format!(
        r#"
job "{id}" {{
  type = "batch"
  {job}
  group "g" {{
    {group}
    restart {{
      attempts = 1
      interval = "10m"
      delay    = "0s"
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver = "{driver}"
      {user}
      config {{
        command = "/bin/sh"
        args    = ["${{NOMAD_TASK_DIR}}/script"]
      }}
      env {{
        CANARY = "{canary}"
        PATH   = "/usr/bin:/bin"
      }}
      logs {{
        max_files     = 20
        max_file_size = 1
      }}
      identity {{
        env  = true
        file = true
      }}
      template {{
        destination = "local/script"
        change_mode = "noop"
        data        = <<EOT
{script}
EOT
      }}
      template {{
        destination = "local/conf"
        change_mode = "noop"
        data        = "template {{{{ env \"NOMAD_ALLOC_INDEX\" }}}}\n"
      }}
      {task}
      resources {{
        cpu    = 50
        memory = 64
      }}
    }}
  }}
}}
"#,
        canary = canary.display()
    )
}

fn events(alloc: &Value) -> String {
    let all = alloc["TaskStates"]["t"]["Events"].as_array().cloned().unwrap_or_default();
    let text = |event: &Value| format!("{}: {}", event["Type"], event["DisplayMessage"]);
    all.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn alloc_of(agent: &Agent, job: &str) -> Result<Value> {
    let alloc = agent.allocs(job)?.into_iter().next().context("no allocation yet")?;
    agent.get(&format!("/v1/allocation/{}", id_of(&alloc)?))
}

#[test]
fn what_a_user_plants_leads_nowhere_and_the_task_starts_again() -> Result<()> {
    let (_server, source) = artifact()?;
    let volume = tempfile::tempdir()?;
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o755))?;
    fs::write(volume.path().join("content"), "volume\n")?;
    let extra =
        format!("client {{\n  host_volume \"h\" {{\n    path = \"{}\"\n  }}\n}}\n", volume.path().display());
    let agent = Agent::with(AgentOptions { extra, ..AgentOptions::default() })?;
    for (driver, user) in [("exec", ""), ("raw_exec", "nobody")] {
        let parent = format!("plant-{}", driver.replace('_', "-"));
        let canary = Canary::new(&agent, &parent)?;
        let text = planting_job(&parent, driver, user, PLANT, &canary.0, &Blocks::all(&source));
        run_job(&agent, &parent, &text)?;
        let job = dispatch(&agent, &parent)?;
        let alloc = eventually("the second run", || {
            let alloc = alloc_of(&agent, &job)?;
            let runs = alloc["TaskStates"]["t"]["Restarts"] == 1 && alloc["ClientStatus"] == "running";
            ensure!(runs, "{}", events(&alloc));
            Ok(alloc)
        })?;
        let id = id_of(&alloc)?;
        let output = eventually("what the second run says", || {
            let output = agent.logs(&id, "t", "stdout")?;
            ensure!(output.contains("token"), "no token yet");
            Ok(output)
        })?;
        ensure!(!output.contains("moved") && !output.contains("removed"), "{driver}: {output:.200}");
        let shown: Vec<&str> = output.lines().filter(|line| !line.starts_with("line ")).collect();
        // Unchanged templates and artifacts are not written again, so root leaves the planted files alone.
        let all = "second run,payload,volume,identity,token";
        ensure!(shown.join(",") == all, "{driver}: {shown:?}\n{}", events(&alloc));
        ensure!(fs::read_to_string(volume.path().join("content"))? == "volume\n");
        ensure!(output.lines().filter(|line| line.starts_with("line ")).count() == 30_000, "lines are lost");
        canary.check().with_context(|| format!("{driver}: {}", events(&alloc)))?;
        let dir = agent.data_dir().join("alloc").join(&id);
        for (path, uid, mode) in [
            ("alloc", 0, 0o1777),
            ("alloc/data", 0, 0o777),
            ("alloc/logs", 0, 0o777),
            ("t", 0, 0o1777),
            ("t/local", 0, 0o777),
            ("t/secrets", 65534, 0o700),
            ("t/private", 0, 0o700),
        ] {
            let meta = fs::symlink_metadata(dir.join(path))?;
            ensure!((meta.uid(), meta.mode() & 0o7777) == (uid, mode), "{driver}: {path}: {:o}", meta.mode());
        }
        agent.caravan(&["job", "stop", "-detach", &job])?.ok()?;
    }
    Ok(())
}

fn replace_arguments(text: &mut String, script: &str) -> Result<()> {
    let start = text.find("args    =").context("the arguments")?;
    let end = start + text[start..].find('\n').context("the end of the line")?;
    text.replace_range(start..end, &format!("args = [\"-c\", {script:?}]"));
    Ok(())
}

/// Checks a link in the place of a directory that root created below `local`, and that a task moved. The link is
/// refused and named wherever root writes at each start.
#[test]
fn a_link_in_the_place_of_a_directory_below_local_is_refused_and_named() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let identity = "identity {\n name = \"i\"\n aud = [\"a\"]\n file = true\n filepath = \"local/deep/id\"\n ttl = \"1h\"\n }";
    let payload = "dispatch_payload {\n file = \"deep/input\"\n }".to_owned();
    for (name, task, named) in
        [("identity", identity.to_owned(), "local/deep"), ("payload", payload, "deep/input")]
    {
        for (driver, user) in [("exec", ""), ("raw_exec", "nobody")] {
            let id = format!("deep-{name}-{}", driver.replace('_', "-"));
            let canary = Canary::new(&agent, &id)?;
            let is_dispatched = name == "payload";
            let mut blocks = Blocks { task: task.clone(), ..Blocks::default() };
            if is_dispatched {
                blocks.job = "parameterized {\n payload = \"required\"\n }".to_owned();
            }
            let script = "cd $NOMAD_TASK_DIR && mv deep deep.away && ln -s $CANARY/sub deep; exit 1";
            let mut text = planting_job(&id, driver, user, "", &canary.0, &blocks);
            replace_arguments(&mut text, script)?;
            run_job(&agent, &id, &text)?;
            let job = if is_dispatched { dispatch(&agent, &id)? } else { id.clone() };
            eventually(&format!("the second start of {id} to fail"), || {
                let alloc = alloc_of(&agent, &job)?;
                let events = events(&alloc);
                let failures: Vec<&str> = events.lines().filter(|line| line.contains(named)).collect();
                let errors = || agent.logs(&id_of(&alloc)?, "t", "stderr");
                let failed = !failures.is_empty() && alloc["ClientStatus"] == "failed";
                ensure!(failed, "{events}\n{:?}", errors());
                Ok(())
            })?;
            canary.check().context(id)?;
        }
    }
    Ok(())
}

/// Checks that the unusable path is named if a task that is root in its own root directory renames an entry there.
#[test]
fn what_root_in_a_sandbox_plants_is_refused_and_named() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    for (name, place, named) in
        [("local", "/local", "t/local"), ("tmp", "/tmp", "t/tmp"), ("logs", "/alloc/logs", "alloc/logs")]
    {
        let job = format!("root-{name}");
        let canary = Canary::new(&agent, &job)?;
        let script = format!("mv {place} {place}.away; ln -s $CANARY {place}; exit 1");
        let mut text = planting_job(&job, "exec", "root", "", &canary.0, &Blocks::default());
        replace_arguments(&mut text, &script)?;
        run_job(&agent, &job, &text)?;
        eventually("the second start fails", || {
            let alloc = alloc_of(&agent, &job)?;
            let events = events(&alloc);
            ensure!(events.contains(named) && events.contains("symbolic link"), "{name}: {events}");
            Ok(())
        })?;
        canary.check().context(job)?;
    }
    Ok(())
}

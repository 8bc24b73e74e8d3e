//! Host volumes: configured in the agent, created by plugins, claimed by groups, and left behind by a killed agent.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Returns a job that writes a line into a host volume, prints the volume's content, and keeps running.
fn user(id: &str, driver: &str, volume: &str, word: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    volume "data" {{
      type = "host"
{volume}
    }}
    task "user" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "umask 0; cat ${{NOMAD_TASK_DIR}}/data/log; echo {word} >> ${{NOMAD_TASK_DIR}}/data/log && echo wrote {word} || echo refused {word}; while :; do sleep 1; done"]
      }}
      volume_mount {{
        volume      = "data"
        destination = "${{NOMAD_TASK_DIR}}/data"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

fn wait_output(agent: &Agent, alloc: &str, needle: &str) -> Result<String> {
    eventually(&format!("{needle:?} in the output"), || {
        let text = agent.logs(alloc, "user", "stdout")?;
        if text.contains(needle) { Ok(text) } else { bail!("output so far: {text:?}") }
    })
}

/// Writes a volume file and creates the volume through the agent. Returns the volume.
fn create(agent: &Agent, name: &str, more: &str) -> Result<Value> {
    let path = agent.dir().join(format!("{name}.volume.hcl"));
    fs::write(&path, format!("type = \"host\"\nname = \"{name}\"\n{more}\n"))?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])?.ok()?;
    volume(agent, name)
}

fn volumes(agent: &Agent) -> Result<Vec<Value>> {
    Ok(agent.get("/v1/volumes?type=host")?.as_array().cloned().unwrap_or_default())
}

fn volume(agent: &Agent, name: &str) -> Result<Value> {
    let list = volumes(agent)?;
    let Some(stub) = list.iter().find(|v| v["Name"] == name) else { bail!("no volume {name}: {list:?}") };
    agent.get(&format!("/v1/volume/host/{}", id_of(stub)?))
}

fn path_of(volume: &Value) -> Result<String> {
    let path = volume["HostPath"].as_str().unwrap_or_default();
    ensure!(!path.is_empty(), "{volume}");
    Ok(path.to_owned())
}

fn wait_state(agent: &Agent, name: &str, state: &str) -> Result<Value> {
    eventually(&format!("volume {name} to be {state}"), || {
        let found = volume(agent, name)?;
        if found["State"] == state { Ok(found) } else { bail!("{found}") }
    })
}

fn delete(agent: &Agent, id: &str) -> Result<()> {
    agent.caravan(&["volume", "delete", "-type", "host", id])?.ok()?;
    Ok(())
}

const WRITER: &str =
    "capability {\n  access_mode = \"single-node-writer\"\n  attachment_mode = \"file-system\"\n}";

fn with_plugins(dir: &Path) -> AgentOptions {
    let extra = format!("client {{\n  host_volume_plugin_dir = \"{}\"\n}}\n", dir.display());
    AgentOptions { extra, ..AgentOptions::default() }
}

fn script(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[test]
fn directories_of_the_configuration_are_offered_and_read_only_is_kept() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // Tasks of driver exec run as user nobody.
    fs::write(dir.path().join("log"), "first\n")?;
    fs::set_permissions(dir.path().join("log"), fs::Permissions::from_mode(0o666))?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777))?;
    let path = dir.path().display();
    let extra = format!(
        "client {{\n  host_volume \"open\" {{\n    path = \"{path}\"\n  }}\n  host_volume \"closed\" {{\n    path = \"{path}\"\n    read_only = true\n  }}\n}}\n"
    );
    let agent = Agent::with(AgentOptions { extra, ..AgentOptions::default() })?;
    for driver in DRIVERS {
        let job = format!("w-{}", driver.replace('_', "-"));
        run_job(&agent, &job, &user(&job, driver, "source = \"open\"", &job))?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        ensure!(wait_output(&agent, &alloc, &format!("wrote {job}"))?.starts_with("first\n"));
        let job = format!("r-{}", driver.replace('_', "-"));
        run_job(&agent, &job, &user(&job, driver, "source = \"closed\"\nread_only = true", &job))?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        wait_output(&agent, &alloc, &format!("refused {job}"))?;
    }
    // A writer of a read-only volume waits.
    run_job(&agent, "waits", &user("waits", "raw_exec", "source = \"closed\"", "x"))?;
    eventually("the evaluation to wait", || {
        let evals = agent.get("/v1/job/waits/evaluations")?.to_string();
        if evals.contains("missing compatible host volumes") { Ok(()) } else { bail!("{evals}") }
    })?;
    let node = agent.caravan(&["node", "status", "-verbose", &agent.node_id()?])?.ok()?;
    ensure!(node.stdout.contains("Host Volumes\nName    ReadOnly  Source\nclosed  true"), "{}", node.stdout);
    Ok(())
}

#[test]
fn a_directory_of_the_configuration_must_be_there() -> Result<()> {
    let extra = "client {\n  host_volume \"gone\" {\n    path = \"/nowhere/at/all\"\n  }\n}\n".to_owned();
    let mut agent = Agent::launch(AgentOptions { extra, ..AgentOptions::default() })?;
    ensure!(agent.wait_end()? != 0);
    let log = agent.log();
    ensure!(log.contains("failed to validate volume gone, err: stat /nowhere/at/all"), "{log}");
    Ok(())
}

/// Checks that a file without `plugin_id` selects the built-in plugin (docs/design/rough-edges.md, 38).
#[test]
fn a_directory_is_made_used_by_both_drivers_kept_while_used_and_removed() -> Result<()> {
    let agent = Agent::start()?;
    let made = create(
        &agent,
        "data",
        &format!("{WRITER}\nparameters {{\n  mode = \"2777\"\n  uid = \"1234\"\n  gid = \"4321\"\n}}"),
    )?;
    let (id, path) = (id_of(&made)?, path_of(&made)?);
    ensure!(
        made["PluginID"] == "mkdir"
            && made["State"] == "ready"
            && made["NodeID"] == agent.node_id()?.as_str()
    );
    ensure!(made.get("Intent").is_none(), "nothing is in progress: {made}");
    let seen = fs::metadata(&path)?;
    ensure!((seen.mode() & 0o7777, seen.uid(), seen.gid()) == (0o2777, 1234, 4321));

    for driver in DRIVERS {
        let job = driver.replace('_', "-");
        run_job(&agent, &job, &user(&job, driver, "source = \"data\"", &job))?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        wait_output(&agent, &alloc, &format!("wrote {job}"))?;
        let refused = agent.caravan(&["volume", "delete", "-type", "host", &id])?;
        ensure!(refused.code != 0 && refused.stderr.contains("in use by allocations: ["), "{refused:?}");
        ensure!(refused.stderr.contains(&alloc), "{refused:?}");
        let status = agent.caravan(&["volume", "status", &id[..8]])?.ok()?;
        ensure!(
            status.stdout.contains("State     = ready") && status.stdout.contains(&alloc[..8]),
            "{}",
            status.stdout
        );
        agent.caravan(&["job", "stop", "-detach", &job])?.ok()?;
        agent.wait_alloc(&job, "complete")?;
    }
    ensure!(fs::read_to_string(Path::new(&path).join("log"))? == "raw-exec\nexec\n");
    let list = agent.caravan(&["volume", "status"])?.ok()?.stdout;
    ensure!(list.starts_with("Dynamic Host Volumes\nID        Name  Namespace"), "{list}");
    ensure!(list.contains("\n\nContainer Storage Interface"), "{list}");
    delete(&agent, &id)?;
    ensure!(!Path::new(&path).exists());
    ensure!(agent.request("GET", &format!("/v1/volume/host/{id}"), None)?.status == 404);
    // The name is free again, and a waiting job runs as soon as the volume exists.
    run_job(&agent, "early", &user("early", "raw_exec", "source = \"data\"", "early"))?;
    eventually("the evaluation to wait for the volume", || {
        let evals = agent.get("/v1/job/early/evaluations")?.to_string();
        if evals.contains("host-volume:default:data") { Ok(()) } else { bail!("{evals}") }
    })?;
    create(&agent, "data", WRITER)?;
    agent.wait_alloc("early", "running").map(drop)
}

#[test]
fn a_directory_that_is_there_is_registered_and_stays_when_it_is_forgotten() -> Result<()> {
    let agent = Agent::start()?;
    let dir = tempfile::tempdir()?;
    let file = agent.dir().join("there.hcl");
    let node = agent.node_id()?;
    let text = |path: &str| {
        format!("type = \"host\"\nname = \"there\"\nnode_id = \"{node}\"\nhost_path = \"{path}\"\n{WRITER}\n")
    };
    fs::write(&file, text("/nowhere/at/all"))?;
    let file = file.to_string_lossy().into_owned();
    let refused = agent.caravan(&["volume", "register", &file])?;
    ensure!(
        refused.code != 0 && refused.stderr.contains("could not verify host path for \"there\""),
        "{refused:?}"
    );
    ensure!(volumes(&agent)?.is_empty(), "nothing is left of it");
    fs::write(&file, text(&dir.path().display().to_string()))?;
    let done = agent.caravan(&["volume", "register", &file])?.ok()?;
    ensure!(done.stdout.starts_with("Registered host volume there with ID "), "{}", done.stdout);
    let id = id_of(&wait_state(&agent, "there", "ready")?)?;
    // A name is unique on a node.
    let again = agent.caravan(&["volume", "register", &file])?;
    ensure!(again.stderr.contains("volume name already exists on this node"), "{again:?}");
    delete(&agent, &id)?;
    ensure!(dir.path().exists());
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_in_words() -> Result<()> {
    let agent = Agent::start()?;
    let reported = |body: Value| -> Result<String> {
        let reply = agent.request("PUT", "/v1/volume/host/create", Some(&json!({"Volume": body})))?;
        ensure!(reply.status == 500, "{}", reply.text());
        Ok(reply.text())
    };
    ensure!(reported(json!({}))? == "volume validation failed: missing name");
    let modes = json!({"Name": "a", "RequestedCapabilities": [{"AccessMode": "odd", "AttachmentMode": "file-system"}]});
    ensure!(reported(modes)? == "volume validation failed: invalid access mode: \"odd\"");
    ensure!(reported(json!({"Name": "a", "Namespace": "none"}))? == "no such namespace \"none\"");
    ensure!(
        reported(json!({"Name": "a", "NodeID": "none"}))?
            == "validating volume \"a\" against state failed: node \"none\" does not exist"
    );
    let placed = reported(json!({"Name": "a", "PluginID": "none"}))?;
    ensure!(
        placed.starts_with("could not place volume \"a\": no node meets constraints: 0 nodes had"),
        "{placed}"
    );
    let id = "8e5b1e1a-0000-4000-8000-000000000001";
    let missing = reported(json!({"Name": "a", "ID": id}))?;
    ensure!(missing == format!("cannot update volume \"{id}\": volume does not exist"), "{missing}");
    let wrong = reported(json!({"Name": "a", "Parameters": {"size": "1"}}))?;
    ensure!(wrong.ends_with("invalid value for \"size\": unknown mkdir parameter: \"size\""), "{wrong}");
    let gone = agent.request("DELETE", &format!("/v1/volume/host/{id}"), None)?;
    ensure!(gone.text() == format!("no such volume: {id}"), "{}", gone.text());
    ensure!(volumes(&agent)?.is_empty());
    Ok(())
}

const PLUGIN: &str = r#"#!/bin/sh
case "$1" in
fingerprint) echo '{"version":"1.2.3"}' ;;
create)
  /usr/bin/env > "$DHV_PLUGIN_DIR/../env.$1"
  /bin/mkdir -p "$DHV_VOLUMES_DIR/mine-$DHV_VOLUME_ID"
  echo "{\"path\":\"$DHV_VOLUMES_DIR/mine-$DHV_VOLUME_ID\",\"bytes\":123}"
  ;;
delete)
  /usr/bin/env > "$DHV_PLUGIN_DIR/../env.$1"
  /bin/rm -rf "$DHV_CREATED_PATH"
  ;;
esac
"#;

/// A plugin that reports a creation in unreadable output; the created directory must be deleted again.
const UNREADABLE: &str = r#"#!/bin/sh
case "$1" in
fingerprint) echo '{"version":"0.1.0"}' ;;
create) /bin/mkdir -p "$DHV_PLUGIN_DIR/../left-$DHV_VOLUME_ID"; echo done ;;
delete) /bin/rm -rf "$DHV_PLUGIN_DIR/../left-$DHV_VOLUME_ID" ;;
esac
"#;

const FAILING: &str = r#"#!/bin/sh
case "$1" in
fingerprint) echo '{"version":"0.1.0"}' ;;
*) echo '{"error":"the disk is full"}'; exit 3 ;;
esac
"#;

#[test]
fn executables_make_and_delete_volumes_and_are_told_exactly_what_they_need() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins)?;
    script(&plugins, "mine", PLUGIN)?;
    script(&plugins, "unreadable", UNREADABLE)?;
    script(&plugins, "failing", FAILING)?;
    fs::write(plugins.join("notes.txt"), "no plugin")?;
    let agent = Agent::with(with_plugins(&plugins))?;
    let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
    ensure!(node["Attributes"]["plugins.host_volume.mine.version"] == "1.2.3", "{}", node["Attributes"]);
    ensure!(node["Attributes"]["plugins.host_volume.mkdir.version"] == "0.0.1");
    ensure!(node["Attributes"].get("plugins.host_volume.notes.txt.version").is_none());

    let more = format!(
        "plugin_id = \"mine\"\ncapacity_min = \"1MB\"\ncapacity_max = \"2MB\"\n{WRITER}\nparameters {{\n  colour = \"red\"\n}}"
    );
    let made = create(&agent, "data", &more)?;
    ensure!(made["CapacityBytes"] == 123 && made["State"] == "ready", "{made}");
    let (id, path) = (id_of(&made)?, path_of(&made)?);
    let environment = |operation: &str| -> Result<Vec<String>> {
        let text = fs::read_to_string(dir.path().join(format!("env.{operation}")))?;
        // Variables that the shell sets itself.
        let own = ["PWD=", "SHLVL=", "_="];
        let mut lines: Vec<String> =
            text.lines().filter(|l| !own.iter().any(|p| l.starts_with(p))).map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    };
    let volumes_dir = Path::new(&path).parent().map(|p| p.display().to_string()).unwrap_or_default();
    let mut expected = vec![
        "DHV_NAMESPACE=default".to_owned(),
        format!("DHV_NODE_ID={}", agent.node_id()?),
        "DHV_NODE_POOL=default".to_owned(),
        "DHV_OPERATION=create".to_owned(),
        "DHV_PARAMETERS={\"colour\":\"red\"}".to_owned(),
        format!("DHV_PLUGIN_DIR={}", plugins.display()),
        format!("DHV_VOLUMES_DIR={volumes_dir}"),
        format!("DHV_VOLUME_ID={id}"),
        "DHV_VOLUME_NAME=data".to_owned(),
        "DHV_CAPACITY_MAX_BYTES=2000000".to_owned(),
        "DHV_CAPACITY_MIN_BYTES=1000000".to_owned(),
    ];
    expected.sort();
    ensure!(environment("create")? == expected, "{:?}", environment("create")?);
    delete(&agent, &id)?;
    ensure!(!Path::new(&path).exists());
    let reported = environment("delete")?;
    ensure!(reported.contains(&format!("DHV_CREATED_PATH={path}")) && reported.len() == 10, "{reported:?}");

    // A created directory is not lost when its plugin's output is unreadable (docs/design/rough-edges.md, 41).
    for (plugin, words) in [
        ("unreadable", "error parsing create output as json"),
        ("failing", "with plugin \"failing\": exit status 3: the disk is full"),
    ] {
        let file = agent.dir().join("bad.hcl");
        fs::write(&file, format!("type = \"host\"\nname = \"bad\"\nplugin_id = \"{plugin}\"\n{WRITER}\n"))?;
        let refused = agent.caravan(&["volume", "create", &file.to_string_lossy()])?;
        ensure!(refused.code != 0 && refused.stderr.contains(words), "{refused:?}");
        ensure!(volumes(&agent)?.is_empty(), "{plugin}: nothing is left of it");
    }
    let left: Vec<_> =
        fs::read_dir(dir.path())?.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    ensure!(!left.iter().any(|name| name.starts_with("left-")), "{left:?}");
    Ok(())
}

/// Checks that a sticky claim and its id survive updates of the job and the agent's end
/// (docs/design/rough-edges.md, 39).
#[test]
fn a_sticky_group_keeps_its_hold_through_updates_and_restarts() -> Result<()> {
    let mut agent = Agent::start()?;
    let made = create(&agent, "data", WRITER)?;
    let id = id_of(&made)?;
    let sticky = "source = \"data\"\nsticky = true";
    run_job(&agent, "web", &user("web", "raw_exec", sticky, "one"))?;
    let first = id_of(&agent.wait_alloc("web", "running")?)?;
    wait_output(&agent, &first, "wrote one")?;
    let claim = || -> Result<Value> {
        let claims = agent.get("/v1/volumes/claims?job_id=web")?;
        let [claim] = claims.as_array().map(Vec::as_slice).unwrap_or_default() else { bail!("{claims}") };
        Ok(claim.clone())
    };
    let before = claim()?;
    ensure!(before["VolumeID"] == id.as_str() && before["AllocID"] == first.as_str(), "{before}");
    ensure!(before["VolumeName"] == "data" && before["TaskGroupName"] == "g", "{before}");

    run_job(&agent, "web", &user("web", "raw_exec", sticky, "two"))?;
    let second = eventually("the replacement to run", || {
        let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
        if alloc == first { bail!("still the first") } else { Ok(alloc) }
    })?;
    ensure!(wait_output(&agent, &second, "wrote two")?.starts_with("one\n"));
    let after = claim()?;
    ensure!(after["ID"] == before["ID"] && after["AllocID"] == second.as_str(), "{before} {after}");

    agent.caravan(&["job", "stop", "-detach", "web"])?.ok()?;
    agent.wait_alloc("web", "complete")?;
    agent.kill_9()?;
    agent.run()?;
    wait_state(&agent, "data", "ready")?;
    let refused = agent.caravan(&["volume", "delete", "-type", "host", &id])?;
    ensure!(refused.code != 0 && refused.stderr.contains("is claimed by task groups: [web/g"), "{refused:?}");
    let list = agent.caravan(&["volume", "claim", "list", "-job", "web"])?.ok()?.stdout;
    ensure!(list.starts_with("ID        Namespace  Job ID  Volume ID  Volume Name\n"), "{list}");
    let hold = before["ID"].as_str().unwrap_or_default().to_owned();
    agent.caravan(&["volume", "claim", "delete", "-y", &hold[..8]])?.ok()?;
    delete(&agent, &id)
}

#[test]
fn tasks_go_on_and_volumes_come_back_when_the_agent_is_killed() -> Result<()> {
    let mut agent = Agent::start()?;
    create(&agent, "data", &format!("{WRITER}\nparameters {{\n  mode = \"0777\"\n}}"))?;
    run_job(&agent, "web", &user("web", "exec", "source = \"data\"", "one"))?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    wait_output(&agent, &alloc, "wrote one")?;
    agent.kill_9()?;
    agent.run()?;
    wait_state(&agent, "data", "ready")?;
    let found = agent.get(&format!("/v1/allocation/{alloc}"))?;
    ensure!(found["ClientStatus"] == "running" && found["TaskStates"]["user"]["Restarts"] == 0, "{found}");
    agent.caravan(&["alloc", "restart", &alloc])?.ok()?;
    eventually("the task to be there again with its volume", || {
        let text = agent.logs(&alloc, "user", "stdout")?;
        if text.matches("wrote one").count() == 2 { Ok(()) } else { bail!("{text}") }
    })
}

/// A plugin that waits in `create` for a file, so that the agent can be killed meanwhile. Each run creates the same
/// directory.
const SLOW: &str = r#"#!/bin/sh
case "$1" in
fingerprint) echo '{"version":"1.0.0"}' ;;
create)
  /bin/mkdir -p "$DHV_PLUGIN_DIR/../made/$DHV_VOLUME_ID"
  echo begun >> "$DHV_PLUGIN_DIR/../runs"
  while [ ! -e "$DHV_PLUGIN_DIR/../go" ]; do /bin/sleep 0.1; done
  echo "{\"path\":\"$DHV_PLUGIN_DIR/../made/$DHV_VOLUME_ID\",\"bytes\":0}"
  ;;
delete) /bin/rm -rf "$DHV_PLUGIN_DIR/../made/$DHV_VOLUME_ID" ;;
esac
"#;

#[test]
fn an_agent_killed_while_a_volume_is_made_comes_to_one_directory_and_one_record() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins)?;
    script(&plugins, "slow", SLOW)?;
    let mut agent = Agent::with(with_plugins(&plugins))?;
    let body = json!({"Volume": {"Name": "data", "PluginID": "slow"}});
    std::thread::scope(|scope| -> Result<()> {
        // The request breaks off with the agent.
        let asked = scope.spawn(|| agent.request("PUT", "/v1/volume/host/create", Some(&body)));
        eventually("the plugin to be at work", || {
            if dir.path().join("runs").exists() { Ok(()) } else { bail!("not yet") }
        })?;
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(i32::try_from(agent.pid())?),
            nix::sys::signal::Signal::SIGKILL,
        )?;
        drop(asked.join());
        Ok(())
    })?;
    agent.kill_9()?;
    agent.run()?;
    let list = volumes(&agent)?;
    ensure!(list.len() == 1 && list[0]["State"] == "pending", "{list:?}");
    let id = id_of(&list[0])?;
    let intended = agent.get(&format!("/v1/volume/host/{id}"))?;
    ensure!(intended["Intent"] == "create", "{intended}");
    fs::write(dir.path().join("go"), "")?;
    let ready = wait_state(&agent, "data", "ready")?;
    ensure!(id_of(&ready)? == id);
    eventually("the intent to be done", || {
        let row = volume(&agent, "data")?;
        if row.get("Intent").is_none() { Ok(()) } else { bail!("{row}") }
    })?;
    let made: Vec<_> = fs::read_dir(dir.path().join("made"))?.collect();
    ensure!(made.len() == 1 && volumes(&agent)?.len() == 1, "{made:?}");
    delete(&agent, &id)?;
    ensure!(fs::read_dir(dir.path().join("made"))?.next().is_none());
    Ok(())
}

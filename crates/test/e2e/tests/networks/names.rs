//! The blocks `dns` and `hostname` of networks.

use super::{id_of, lines};
use crate::run_job;
use anyhow::{Result, ensure};
use caravan_testkit::{Agent, eventually};

fn job(id: &str, driver: &str, network: &str) -> String {
    format!(
        r#"
job "{id}" {{
  meta {{
    zone = "a.test"
  }}
  group "g" {{
    network {{
      {network}
    }}
    restart {{
      attempts = 0
    }}
    reschedule {{
      attempts = 0
    }}
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "hostname; cat /etc/resolv.conf; grep -v -e '^#' -e '^$' /etc/hosts; echo end; exec sleep 3600"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#
    )
}

const DNS: &str =
    "dns {\n servers = [\"10.0.0.53\"]\n searches = [\"${NOMAD_META_zone}\"]\n options = [\"ndots:2\"]\n }";

#[test]
fn tasks_have_the_resolver_and_the_name_of_their_network() -> Result<()> {
    let agent = Agent::start()?;
    let network = format!("mode = \"none\"\n hostname = \"web-${{NOMAD_ALLOC_INDEX}}\"\n {DNS}");
    run_job(&agent, "named", &job("named", "exec", &network))?;
    let id = id_of(&agent.wait_alloc("named", "running")?)?;
    let printed = lines(&agent, &id, "t", 5)?;
    ensure!(
        printed[..4] == ["web-0", "nameserver 10.0.0.53", "search a.test", "options ndots:2"],
        "{printed:?}"
    );
    ensure!(printed.iter().any(|line| line == "127.0.0.1 web-0"), "{printed:?}");
    let inside = agent.caravan(&["alloc", "exec", "-task", "t", &id, "hostname"])?.ok()?;
    ensure!(inside.stdout.trim() == "web-0", "{}", inside.all());

    // In the node's network, the block counts as well.
    run_job(&agent, "host", &job("host", "exec", DNS))?;
    let id = id_of(&agent.wait_alloc("host", "running")?)?;
    let printed = lines(&agent, &id, "t", 5)?;
    ensure!(printed[1] == "nameserver 10.0.0.53", "{printed:?}");
    let status = agent.get(&format!("/v1/allocation/{id}"))?;
    ensure!(
        status["NetworkStatus"].is_null() || status["NetworkStatus"]["DNS"]["Servers"][0] == "10.0.0.53",
        "{status}"
    );

    for (id, driver, network, words) in [
        (
            "raw",
            "raw_exec",
            "mode = \"none\"\n hostname = \"web\"",
            "hostname is not currently supported on driver raw_exec",
        ),
        (
            "mode",
            "exec",
            "hostname = \"web\"",
            "hostname cannot be set on task group using \\\"host\\\" networking mode",
        ),
        (
            "name",
            "exec",
            "mode = \"none\"\n hostname = \"a_${NOMAD_ALLOC_INDEX}\"",
            "is not a valid DNS name",
        ),
        ("server", "exec", "dns {\n servers = [\"ns.test\"]\n }", "bad nameserver address"),
    ] {
        run_job(&agent, id, &job(id, driver, network))?;
        let alloc = id_of(&agent.wait_alloc(id, "failed")?)?;
        let events = agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["t"]["Events"].to_string();
        ensure!(events.contains(words), "{id}: {events}");
    }
    run_job(&agent, "warned", &job("warned", "raw_exec", DNS))?;
    let id = id_of(&agent.wait_alloc("warned", "running")?)?;
    eventually("the event", || {
        let events = agent.get(&format!("/v1/allocation/{id}"))?["TaskStates"]["t"]["Events"].to_string();
        ensure!(events.contains("dns of the network has no effect"), "{events}");
        Ok(())
    })
}

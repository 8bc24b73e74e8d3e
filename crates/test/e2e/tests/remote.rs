//! One server, and clients as separate processes on the same machine.

use crate::run_job;
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};

#[test]
fn a_server_and_two_clients_in_processes_of_their_own() -> Result<()> {
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = || Agent::with(AgentOptions::client_of(&server));
    let (one, two) = (client()?, client()?);
    eventually("both nodes to be ready", || {
        let nodes = server.get("/v1/nodes")?;
        let ready = nodes.as_array().into_iter().flatten().filter(|n| n["Status"] == "ready").count();
        if ready == 2 { Ok(()) } else { bail!("{nodes}") }
    })?;
    let text = "job \"everywhere\" {\n type = \"system\"\n group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sh\"\n args = [\"-c\", \"echo here; exec sleep 600\"]\n }\n resources {\n cpu = 20\n memory = 16\n }\n }\n }\n}\n";
    // The request is sent to a client, which forwards it to the server.
    run_job(&one, "everywhere", text)?;
    eventually("an allocation on each node", || {
        let allocs = server.allocs("everywhere")?;
        let running = allocs.iter().filter(|a| a["ClientStatus"] == "running").count();
        if running == 2 { Ok(()) } else { bail!("{allocs:?}") }
    })?;
    // Logs of either client are read through the server, and through the other client.
    for alloc in server.allocs("everywhere")? {
        let id = alloc["ID"].as_str().unwrap_or_default();
        for agent in [&server, &one, &two] {
            let text = eventually("the output", || {
                let text = agent.logs(id, "t", "stdout")?;
                if text.is_empty() { bail!("empty") } else { Ok(text) }
            })?;
            ensure!(text == "here\n", "{text:?}");
        }
    }
    server.caravan(&["job", "stop", "-detach", "everywhere"])?.ok()?;
    eventually("both to end", || {
        let allocs = server.allocs("everywhere")?;
        let live = allocs.iter().filter(|a| a["ClientStatus"] == "running").count();
        if live == 0 { Ok(()) } else { bail!("{live} run") }
    })
}

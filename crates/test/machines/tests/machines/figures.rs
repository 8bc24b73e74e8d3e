//! Figures of `cargo xtask bench machine`, in ratio to a bare program of the same machine. Each is one JSON object a
//! line.

use crate::main_job::{AT_START, AT_STOP, DRIVERS, start};
use crate::more;
use anyhow::{Context, Result, ensure};
use caravan_testkit::vm::{Machine, MachineOptions};
use serde_json::json;

/// The number of runs of the bare program.
const RUNS: u32 = 20;
/// The time over which the idle agent is measured, in seconds.
const IDLE: f64 = 30.0;

fn figure(case: &str, value: f64, unit: &str) {
    let value = (value * 100.0).round() / 100.0;
    println!("{}", json!({ "bench": "machine", "case": case, "value": value, "unit": unit }));
}

/// Runs a script in the machine and returns the seconds that it prints last.
fn seconds(machine: &Machine, script: &str) -> Result<f64> {
    let text = machine.sh(script)?;
    text.lines().last().context("no output")?.trim().parse().with_context(|| format!("no number: {text}"))
}

/// Starts the agent of `/etc/rc.local`, and prints the seconds until its node is ready.
const START: &str = r#"
from=$(cut -d' ' -f1 /proc/uptime)
/etc/rc.local
until wget -q -O - http://127.0.0.1:4646/v1/nodes 2>/dev/null | grep -q '"Status":"ready"'; do usleep 5000; done
to=$(cut -d' ' -f1 /proc/uptime)
echo "$from $to" | awk '{ print $2 - $1 }'
"#;

/// Returns the agent's processor time in clock ticks, and the number of switches of its threads.
fn activity(machine: &Machine) -> Result<(f64, f64)> {
    let ticks = seconds(machine, "awk '{ print $14 + $15 }' /proc/$(cat /run/agent.pid)/stat")?;
    let count =
        "cat /proc/$(cat /run/agent.pid)/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'";
    Ok((ticks, seconds(machine, count)?))
}

#[test]
fn figures_of_a_machine() -> Result<()> {
    more("figures", |bench| {
        let machine = bench.booted(MachineOptions::new("m"))?;
        let bare = format!(
            "from=$(cut -d' ' -f1 /proc/uptime); for n in $(seq {RUNS}); do caravan version >/dev/null; done; \
             to=$(cut -d' ' -f1 /proc/uptime); echo \"$from $to\" | awk '{{ print ($2 - $1) / {RUNS} }}'"
        );
        let bare = seconds(&machine, &bare)?;
        figure("bare program, start to end", bare * 1000.0, "ms");

        machine.configure_agent("")?;
        machine.put("/etc/rc.local", 0o755, AT_START.as_bytes())?;
        machine.put("/etc/rc.stop", 0o755, AT_STOP.as_bytes())?;
        let first = seconds(&machine, START)?;
        figure("first start to ready", first * 1000.0, "ms");
        machine.end_agent("INT")?;
        let ready = seconds(&machine, START)?;
        figure("start to ready", ready * 1000.0, "ms");
        figure("start to ready, in bare programs", ready / bare, "times");

        let before = activity(&machine)?;
        machine.sh(&format!("sleep {IDLE}"))?;
        let after = activity(&machine)?;
        figure("idle processor time", (after.0 - before.0) / IDLE, "percent of a core");
        let switches = (after.1 - before.1) / IDLE;
        figure("idle wake-ups", switches, "a second");
        machine.end_agent("INT")?;

        start(&machine)?;
        machine.sh("sync")?;
        machine.reboot()?;
        machine.wait_agent()?;
        for (_, name) in DRIVERS {
            machine.wait_running(name)?;
        }
        let all = seconds(&machine, "cut -d' ' -f1 /proc/uptime")?;
        let agent = "echo $(getconf CLK_TCK 2>/dev/null || echo 100) $(cat /proc/$(cat /run/agent.pid)/stat) | \
            awk '{ print $23 / $1 }'";
        let agent = seconds(&machine, agent)?;
        figure("boot to start of the agent", agent, "s");
        figure("boot to all tasks running", all, "s");
        ensure!(switches <= 5.0, "an idle agent wakes up {switches} times a second");
        Ok(())
    })
}

//! Commands for developers of the workspace: `cargo xtask <command>`.

mod bench;
mod chaos;
mod check;
mod conformance;
mod docs;
mod package;
mod proto;
mod sched;
mod simulate;
mod test;
mod ui;
mod vm;

use anyhow::bail;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <chore>

chores:
  bench agent       measure the release build end to end, one JSON object a line
  bench api         what the HTTP API costs: rates, idle queries, pages
  bench hcl         how fast job files are read
  bench networks    set-up, removal and repair of the networks of allocations
  bench scheduler   how fast evaluations are decided, one JSON object a line
  bench volumes     the same for volumes: slow and failing plugins, large states
  chaos             random schedules against real agents: --seed N, or --seeds N [--from N] [--jobs N]
                    [--steps N] [--nodes N] [--minutes N]; one JSON object a schedule
  check             check the rules of the repository: layers, citations, sizes of files, words
  csi-conformance ENDPOINT|JOB-FILE [flags]
                    take a CSI plugin through the whole life of volumes and say what it does
                    (--help: its flags)
  docs [--check]    write docs/job-language.md from the tables of the job language, and
                    docs/http-routes.md from the table of routes
                    (--check: only compare, fail when they differ)
  package --program FILE [--out DIR]
                    write the Debian package, the tarball and, of a static program, the container image;
                    the same inputs give the same bytes
  proto [--check]   generate crates/wire/proto/src/generated from crates/wire/proto/proto
                    (--check: only compare, fail when they differ)
  sched FILE        build nodes, volumes and jobs by a script, and print what was decided and why
  simulate servers  run several servers in one thread, with everything that goes wrong: [--seeds N] [--from N] [--seed N]
                    [--jobs N] [--minutes N] [--fault NAME|all] [--trace] [--release]; shows the progress, and prints one
                    JSON object: the result, or with --fault the first seed that finds the fault
  test [PART-OF-A-NAME]...
                    build all programs and tests once, and run the tests, several programs at a time
  ui [--check]      build the web page from the folder ui into crates/edge/ui/dist (needs Node 20.19 or newer)
                    (--check: build elsewhere, fail when it differs; check licences and types, run the unit tests)
  vm                virtual machines: list, test [FILTER], run SCRIPT, shell, e2e [FILTER]
                    (flags before run, shell and e2e: --memory MIB --cpus N --with PROGRAM)";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => bail!("no chore given\n{USAGE}"),
    };
    match chore {
        "bench" => bench::run(rest)?,
        "chaos" => chaos::run(rest)?,
        "check" => check::run(rest)?,
        "csi-conformance" => return conformance::run(rest),
        "docs" => docs::run(rest)?,
        "package" => package::run(rest)?,
        "proto" => proto::run(rest)?,
        "sched" => sched::run(rest)?,
        "simulate" => simulate::run(rest)?,
        "test" => test::run(rest)?,
        "ui" => ui::run(rest)?,
        "vm" => vm::run(rest)?,
        other => bail!("there is no chore {other:?}\n{USAGE}"),
    }
    Ok(ExitCode::SUCCESS)
}

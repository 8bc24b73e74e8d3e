//! `caravan-sim bench` prints figures of the scheduler; `fill NODES ALLOCATIONS` prints figures of state and scheduler
//! while a cluster fills; `script FILE` runs a script and prints its output.

use caravan_sys::heap::{Counting, MiMalloc};
use std::process::ExitCode;

#[global_allocator]
static HEAP: Counting<MiMalloc> = Counting::new(MiMalloc);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["bench"] => caravan_sim::bench::scheduler(|figure| {
            let value = (figure.millis * 100.0).round() / 100.0;
            println!(
                "{}",
                serde_json::json!({ "bench": "scheduler", "case": figure.case, "value": value, "unit": "ms" })
            );
        })
        .map_err(|error| error.to_string()),
        ["fill", nodes, allocs] => match (nodes.parse(), allocs.parse()) {
            (Ok(nodes), Ok(allocs)) => caravan_sim::bench::fill(nodes, allocs, || HEAP.bytes(), |filled| {
                let case = format!("{nodes}/{}", filled.allocs);
                for (what, value, unit) in [
                    ("placed and acknowledged by state and scheduler", filled.rate, "1/s"),
                    ("evaluation to plan, p99", filled.p99, "ms"),
                    ("heap an allocation", filled.bytes, "B"),
                ] {
                    let value = (value * 100.0).round() / 100.0;
                    println!(
                        "{}",
                        serde_json::json!({ "bench": "fill", "case": format!("{case}: {what}"), "value": value, "unit": unit })
                    );
                }
            })
            .map_err(|error| error.to_string()),
            _ => Err("usage: caravan-sim fill NODES ALLOCATIONS".to_owned()),
        },
        ["script", file] => std::fs::read_to_string(file)
            .map_err(|error| format!("{file} cannot be read: {error}"))
            .and_then(|text| caravan_sim::script::run(&text).map_err(|error| error.to_string()))
            .map(|output| print!("{output}")),
        _ => Err("usage: caravan-sim bench | fill NODES ALLOCATIONS | script FILE".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

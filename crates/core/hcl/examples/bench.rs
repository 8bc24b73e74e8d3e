//! Measures the speed at which job files are parsed: `cargo xtask bench hcl`. Prints one JSON object per line.

use caravan_api as api;
use caravan_hcl::Source;
use caravan_hcl::job::{ParseOptions, parse};
use std::fmt::Write as _;
use std::time::Instant;

/// The number of runs of each case.
const RUNS: usize = 2000;

/// Returns a job of 200 lines that uses most of the language.
fn job() -> String {
    let mut text = String::from(
        r#"# A shop: four groups, each with a service, a task and what belongs to them.
variable "datacenters" {
  type    = list(string)
  default = ["dc1", "dc2"]
}
variable "image" {
  default = "shop:1.2.3"
}
variable "sizes" {
  type    = map(number)
  default = { small = 128, large = 512 }
}
locals {
  name    = "shop-${var.image}"
  zones   = [for dc in var.datacenters : upper(dc)]
  secrets = { for k, v in var.sizes : k => format("%s-%03d", k, v) if v > 100 }
}

job "shop" {
  datacenters = var.datacenters
  type        = "service"
  priority    = 60
  meta {
    name  = local.name
    zones = join(",", local.zones)
  }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
"#,
    );
    for (group, size) in [("front", "small"), ("back", "large"), ("queue", "small"), ("store", "large")] {
        let _ = write!(
            text,
            r#"  group "{group}" {{
    count = 2 + length(var.datacenters)
    network {{
      port "http" {{
        to = 8080
      }}
      port "admin" {{
      }}
    }}
    update {{
      max_parallel = 2
      canary       = 1
    }}
    service {{
      name = "shop-{group}"
      port = "http"
      tags = ["shop", "urlprefix-/{group}", local.name]
      check {{
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "2s"
      }}
    }}
    task "server" {{
      driver = "exec"
      config {{
        command = "/usr/bin/server"
        args    = ["-port", "${{NOMAD_PORT_http}}", "-group", "{group}"]
      }}
      env {{
        SIZE  = var.sizes["{size}"]
        TOKEN = local.secrets.{size}
        ZONE  = "${{node.datacenter}}"
      }}
      template {{
        destination = "local/app.conf"
        data        = <<EOT
listen = "{{{{ env "NOMAD_ADDR_http" }}}}"
zones  = "${{join(" ", local.zones)}}"
EOT
      }}
"#
        );
    }
    close_groups(text)
}

/// Appends the closing braces of the groups, which `job` leaves open.
fn close_groups(text: String) -> String {
    let end = "      resources {\n        cpu    = 200\n        memory = 256\n      }\n    }\n  }\n";
    let mut out = String::new();
    let mut first = true;
    for line in text.lines() {
        if line.starts_with("  group ") {
            if !first {
                out.push_str(end);
            }
            first = false;
        }
        out.push_str(line);
        out.push('\n');
    }
    out + end + "}\n"
}

fn once(source: &Source, options: &ParseOptions) -> api::Job {
    let (mut job, _) = parse(source, options).expect("the job of the bench is right");
    api::canonicalize(&mut job);
    job
}

#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
fn main() {
    let text = job();
    let lines = text.lines().count();
    let (source, options) = (Source::new("shop.nomad.hcl", text), ParseOptions::default());
    let figure = |case: &str, value: f64, unit: &str| {
        println!("{{\"bench\":\"hcl\",\"case\":\"{case}\",\"value\":{:.1},\"unit\":\"{unit}\"}}", value);
    };
    assert_eq!(once(&source, &options).task_groups.map(|g| g.len()), Some(4));
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let job = once(&source, &options);
            let took = start.elapsed().as_secs_f64() * 1e6;
            drop(job);
            took
        })
        .collect();
    times.sort_by(f64::total_cmp);
    figure(&format!("job of {lines} lines: parse, evaluate, canonicalise, median"), times[RUNS / 2], "us");
    figure(
        &format!("job of {lines} lines: parse, evaluate, canonicalise, 99 of 100"),
        times[RUNS * 99 / 100],
        "us",
    );
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..RUNS * 2).for_each(|_| drop(once(&source, &options))));
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let jobs = (RUNS * 4) as f64 / start.elapsed().as_secs_f64();
    figure("jobs a second, two threads", jobs, "1/s");
}

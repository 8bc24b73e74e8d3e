//! Rules for services and their checks (`jobspec` section 6).

use caravan_types::Nanos;
use caravan_types::job::Carried;
use caravan_types::service::{CheckSpec, ServiceSpec};

/// Looks at the services of a group, or of a task.
pub(super) fn check(
    owner: &str,
    task: Option<&str>,
    services: &[Carried],
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) {
    for carried in services {
        let service = match ServiceSpec::read(carried) {
            Ok(service) => service,
            Err(error) => {
                errors.push(format!("{owner}: a service cannot be read: {error}"));
                continue;
            }
        };
        if !service.is_native() {
            warnings.push(format!(
                "{owner}: service \"{}\" is kept with the job but registered nowhere: its provider is \"{}\", and only \
                 \"nomad\" is there",
                service.name, service.provider
            ));
            continue;
        }
        if carried.0.get("Connect").is_some_and(|connect| !connect.is_null()) {
            errors.push(format!(
                "Service {} uses provider \"nomad\", which does not support a connect block",
                service.name
            ));
        }
        if !matches!(service.address_mode.as_str(), "" | "auto" | "host" | "alloc" | "driver") {
            errors.push(format!(
                "Service address_mode must be \"auto\", \"host\", \"alloc\", or \"driver\"; not \"{}\"",
                service.address_mode
            ));
        }
        for check in &service.checks {
            let of = format!("Check \"{}\" of service \"{}\"", check.name, service.name);
            errors.extend(of_check(&service, check, task).into_iter().map(|what| format!("{of}: {what}")));
        }
    }
}

fn of_check(service: &ServiceSpec, check: &CheckSpec, task: Option<&str>) -> Vec<String> {
    let mut errors = Vec::new();
    match check.kind.as_str() {
        "http" if check.path.is_empty() => errors.push("http type must have http path".to_owned()),
        "http" if !matches!(check.protocol.as_str(), "" | "http") => {
            errors.push(format!("protocol \"{}\" is not supported yet: use \"http\"", check.protocol));
        }
        "grpc" if check.grpc_use_tls => errors.push("grpc_use_tls is not supported yet".to_owned()),
        "http" | "tcp" | "grpc" => {}
        "script" if check.command.is_empty() => errors.push("script type must have a command".to_owned()),
        "script" if task.is_none() && check.task_name.is_empty() && service.task_name.is_empty() => {
            errors.push("script checks of a group's service must name a task".to_owned());
        }
        "script" => {}
        other => errors.push(format!("type \"{other}\" is none of http, tcp, script and grpc")),
    }
    let second = Nanos::from_secs(1);
    if check.interval < second {
        errors.push(format!("interval ({}) must be at least 1s", check.interval));
    }
    if check.timeout < second {
        errors.push(format!("timeout ({}) must be at least 1s", check.timeout));
    }
    if check.kind != "script" && check.port_label.is_empty() && service.port_label.is_empty() {
        errors.push("a port is needed, of the check or of its service".to_owned());
    }
    if !matches!(check.initial_status.as_str(), "" | "passing" | "critical" | "warning" | "pending") {
        errors.push(format!("invalid initial check state ({})", check.initial_status));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(service: serde_json::Value) -> (Vec<String>, Vec<String>) {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        check("group \"g\"", None, &[Carried(service)], &mut errors, &mut warnings);
        (errors, warnings)
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        let second = 1_000_000_000_i64;
        let good = json!({"Name": "web", "Provider": "nomad", "PortLabel": "http", "Checks": [
            {"Name": "up", "Type": "http", "Path": "/", "Interval": second, "Timeout": second}]});
        assert_eq!(run(good.clone()), (vec![], vec![]));
        let mut script = good.clone();
        script["Checks"][0] =
            json!({"Name": "s", "Type": "script", "Command": "true", "Interval": second, "Timeout": second});
        assert_eq!(
            run(script).0,
            ["Check \"s\" of service \"web\": script checks of a group's service must name a task"]
        );
        let mut quick = good.clone();
        quick["Checks"][0]["Interval"] = json!(5);
        assert_eq!(run(quick).0, ["Check \"up\" of service \"web\": interval (5ns) must be at least 1s"]);
        let mut consul = good;
        consul["Provider"] = json!("consul");
        let (errors, warnings) = run(consul);
        assert!(errors.is_empty() && warnings[0].contains("registered nowhere"), "{warnings:?}");
    }
}

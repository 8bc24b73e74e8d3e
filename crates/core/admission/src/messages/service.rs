//! Messages about services and their checks.

use super::*;

pub(super) const CASES: &[Case] = &[
    // Messages about services.
    (
        "Service[0] bad_name! validation failed: 1 error occurred:\n\t* Service name must be valid per RFC 1123",
        |j| {
            group(j).services = service(json!({"Name": "bad_name!"}));
        },
    ),
    ("Service name can not be empty", |j| task(j).services = service(json!({"Name": ""}))),
    ("Services are not unique", |j| {
        group(j).services = [service(json!({})), service(json!({}))].concat();
    }),
    ("task group services must use the same provider, not consul and nomad", |j| {
        group(j).services = [service(json!({})), service(json!({"Name": "b", "Provider": "nomad"}))].concat();
    }),
    ("Service provider must be known, not \"etcd\"", |j| {
        group(j).services = service(json!({"Provider": "etcd"}));
    }),
    ("service address_mode \"driver\" is for services of tasks only", |j| {
        group(j).services = service(json!({"AddressMode": "driver"}));
    }),
    ("Service address_mode must be known, not \"hots\"", |j| {
        group(j).services = service(json!({"AddressMode": "hots"}));
    }),
    ("Service address_mode must be \"auto\" if address is set", |j| {
        group(j).services = service(json!({"AddressMode": "host", "Address": "1.2.3.4"}));
    }),
    ("Service on_update must be known, not \"never\"", |j| {
        group(j).services = service(json!({"OnUpdate": "never"}));
    }),
    ("port label \"htp\" is not defined by a network of the group. Did you mean \"http\"?", |j| {
        group(j).networks = vec![Network { dynamic_ports: vec![port("http", 0)], ..Default::default() }];
        group(j).services = service(json!({"PortLabel": "htp"}));
    }),
    ("refers to task \"x\", which is not in the group", |j| {
        group(j).services = service(json!({"TaskName": "x"}));
    }),
    ("connect is for services of groups only", |j| {
        task(j).services = service(json!({"Connect": {"Native": true}}));
    }),
    ("must be exclusively native", |j| {
        group(j).services = service(json!({"Connect": {"Native": true, "SidecarService": {}}}));
    }),
    ("Service with provider nomad cannot include Connect blocks", |j| {
        group(j).services = service(json!({"Provider": "nomad", "Connect": {"Native": true}}));
    }),
    ("invalid check type \"htpp\"", |j| group(j).services = with_check(json!({"Type": "htpp"}))),
    ("check type must be set", |j| group(j).services = with_check(json!({"Type": ""}))),
    ("http type must have http path", |j| group(j).services = with_check(json!({"Type": "http"}))),
    ("relative http path required", |j| {
        group(j).services = with_check(json!({"Type": "http", "Path": "http://x/"}));
    }),
    ("script type must have a valid script path", |j| {
        task(j).services = with_check(json!({"Type": "script"}));
    }),
    ("script checks of a group's service need a task to run in", |j| {
        group(j).services = with_check(json!({"Type": "script", "Command": "x"}));
    }),
    ("missing required value interval", |j| group(j).services = with_check(json!({"Interval": 0}))),
    ("timeout (999ms) is lower than the required minimum 1s", |j| {
        group(j).services = with_check(json!({"Timeout": 999_000_000}));
    }),
    ("invalid initial check state \"up\"", |j| {
        group(j).services = with_check(json!({"InitialStatus": "up"}))
    }),
    ("invalid address_mode \"auto\"", |j| group(j).services = with_check(json!({"AddressMode": "auto"}))),
    ("check requires a port but neither check nor service has a port", |j| {
        group(j).services = with_check(json!({"PortLabel": ""}));
    }),
    ("on_update value \"ignore\" cannot be used with check_restart", |j| {
        group(j).services = with_check(json!({"OnUpdate": "ignore", "CheckRestart": {"Limit": 1}}));
    }),
    ("limit of check_restart must be positive; got -1", |j| {
        group(j).services = with_check(json!({"CheckRestart": {"Limit": -1}}));
    }),
    ("tls_server_name is not possible with provider nomad", |j| {
        group(j).services = with_check(json!({"Type": "http", "Path": "/", "TLSServerName": "x.org"}));
        group(j).services[0].provider = "nomad".into();
    }),
    ("failures_before_warning is not possible with provider nomad", |j| {
        group(j).services = with_check(json!({"FailuresBeforeWarning": 2}));
        group(j).services[0].provider = "nomad".into();
    }),
];

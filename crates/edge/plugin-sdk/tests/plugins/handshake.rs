//! The handshake, the services of every plugin, and the end of the process.

use crate::host::{COOKIE, Plugin, driver, example, within};
use caravan_proto::plugins::base::{ConfigSchemaRequest, PluginInfoRequest, PluginType};
use caravan_proto::plugins::health::HealthCheckRequest;
use caravan_proto::plugins::health::health_client::HealthClient;
use caravan_proto::plugins::host::Empty;
use caravan_proto::plugins::host::grpc_broker_client::GrpcBrokerClient;
use caravan_proto::plugins::host::grpc_controller_client::GrpcControllerClient;
use caravan_proto::plugins::host::grpc_stdio_client::GrpcStdioClient;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

async fn health(plugin: &Plugin, service: &str) -> Result<i32, tonic::Status> {
    let request = HealthCheckRequest { service: service.into() };
    let response = within(HealthClient::new(plugin.channel.clone()).check(request)).await?;
    Ok(response.into_inner().status)
}

#[test]
fn a_user_at_a_terminal_reads_a_message() {
    for name in ["exampledriver", "exampledevice"] {
        let output = Command::new(example(name)).env_remove(COOKIE.0).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8(output.stderr).unwrap().contains("runs only under an agent"));
    }
    let old = Command::new(example("exampledriver"))
        .env(COOKIE.0, COOKIE.1)
        .env("PLUGIN_PROTOCOL_VERSIONS", "1")
        .output()
        .unwrap();
    assert_eq!(old.status.code(), Some(1));
    assert!(String::from_utf8(old.stderr).unwrap().contains("protocol versions 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_ends_a_plugin_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut plugin = driver(dir.path()).await;
    assert_eq!(plugin.line, format!("1|2|unix|{}|grpc|\n", plugin.socket.display()));
    assert_eq!(plugin.socket.parent().unwrap(), dir.path());
    assert_eq!(fs::metadata(&plugin.socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(health(&plugin, "plugin").await.unwrap(), 1);
    assert_eq!(health(&plugin, "other").await.unwrap_err().code(), tonic::Code::NotFound);

    let mut stdio = GrpcStdioClient::new(plugin.channel.clone());
    let mut stdio = within(stdio.stream_stdio(Empty {})).await.unwrap().into_inner();
    let mut broker = GrpcBrokerClient::new(plugin.channel.clone());
    let mut broker = within(broker.start_stream(tokio_stream::pending())).await.unwrap().into_inner();

    let mut controller = GrpcControllerClient::new(plugin.channel.clone());
    within(controller.shutdown(Empty {})).await.unwrap();
    assert!(within(stdio.message()).await.unwrap().is_none());
    assert!(within(broker.message()).await.unwrap().is_none());
    assert_eq!(plugin.ended(), Some(0));
    assert!(!plugin.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_is_ignored_and_a_termination_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut plugin = driver(dir.path()).await;
    plugin.signal(nix::libc::SIGINT);
    assert_eq!(health(&plugin, "plugin").await.unwrap(), 1);
    plugin.signal(nix::libc::SIGTERM);
    assert_eq!(plugin.ended(), Some(0));
    assert!(!plugin.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_has_a_name_and_a_schema() {
    let dir = tempfile::tempdir().unwrap();
    let driver = Plugin::start("exampledriver", dir.path()).await.unwrap();
    let device = Plugin::start("exampledevice", dir.path()).await.unwrap();
    for (plugin, name, kind) in
        [(&driver, "example", PluginType::Driver), (&device, "example-device", PluginType::Device)]
    {
        let info = within(plugin.base().plugin_info(PluginInfoRequest {})).await.unwrap().into_inner();
        assert_eq!((info.name.as_str(), info.r#type()), (name, kind));
        assert_eq!(info.plugin_api_versions, ["v0.1.0"]);
        assert_eq!(info.plugin_version, env!("CARGO_PKG_VERSION"));
        let schema = within(plugin.base().config_schema(ConfigSchemaRequest {})).await.unwrap();
        assert!(schema.into_inner().spec.is_some());
    }
    let error = driver.configure(&json!({ "enabled": "perhaps" })).await.unwrap_err();
    assert!(error.message().contains("expected a boolean"), "{error}");
    driver.configure(&json!({ "enabled": false })).await.unwrap();
    let log = fs::read_to_string(&driver.log).unwrap();
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(line["@level"], "info");
    assert_eq!(line["@module"], "example");
    assert_eq!(line["@message"], "the driver is configured");
    assert_eq!(line["enabled"], false);
}

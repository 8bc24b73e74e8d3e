//! The checks that call a plugin directly.

use super::{
    Report, Settings,
    bench::{Bench, Offered, hurried},
};
use anyhow::{Context, Result, bail};
use caravan_csi::{
    AccessMode, AttachmentMode, CapabilitySet, Class, ControllerCapability, CreateVolumeRequest, CsiClient,
    Deadlines, NodeCapability, PluginCapability, ValidateRequest, VolumeCapability,
};
use caravan_sys::time::wall_now;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// The combinations of attachment mode and access mode, tested in this order.
const WAYS: [(AttachmentMode, AccessMode); 4] = [
    (AttachmentMode::FileSystem, AccessMode::SingleNodeWriter),
    (AttachmentMode::FileSystem, AccessMode::MultiNodeMultiWriter),
    (AttachmentMode::BlockDevice, AccessMode::SingleNodeWriter),
    (AttachmentMode::BlockDevice, AccessMode::MultiNodeMultiWriter),
];

/// Uses the plugin that serves on a socket (`unix:///path`, `unix:path` or a path) through the whole life of
/// volumes.
///
/// # Errors
/// Fails if the plugin does not respond, or the run cannot continue. The report has the plugin's errors.
pub fn endpoint(endpoint: &str, settings: &Settings, report: &mut Report) -> Result<()> {
    let path =
        endpoint.strip_prefix("unix:").map_or(endpoint, |rest| rest.strip_prefix("//").unwrap_or(rest));
    if path.contains("://") {
        bail!("the endpoint {endpoint:?} is not a unix socket");
    }
    let socket = PathBuf::from(path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&socket, settings, report))
}

async fn run(socket: &Path, settings: &Settings, report: &mut Report) -> Result<()> {
    let client = CsiClient::new(socket, Deadlines::default());
    let deadline = Instant::now() + settings.patience;
    loop {
        match client.probe().await {
            Ok(readiness) if readiness.is_ready() => break,
            other if Instant::now() < deadline => {
                drop(other);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(_) => bail!("the plugin at {} does not get ready", socket.display()),
            Err(error) => return Err(error).context("the plugin does not answer"),
        }
    }
    report.passed("Probe: ready");
    let info = client.get_plugin_info().await;
    if let Some(info) = report.ok("GetPluginInfo", info) {
        report.is("GetPluginInfo: the name is in domain notation", is_name(&info.name), || info.name.clone());
    }
    let Some(plugin) = report.ok("GetPluginCapabilities", client.get_plugin_capabilities().await) else {
        return Ok(());
    };
    let controller = if plugin.has(PluginCapability::ControllerService) {
        report.ok("ControllerGetCapabilities", client.controller_get_capabilities().await).unwrap_or_default()
    } else {
        report.not_offered("CONTROLLER_SERVICE", "");
        CapabilitySet::default()
    };
    let node = report.ok("NodeGetCapabilities", client.node_get_capabilities().await).unwrap_or_default();
    let Some(info) = report.ok("NodeGetInfo", client.node_get_info().await) else {
        return Ok(());
    };
    report.is("NodeGetInfo: the node id has at most 256 bytes", info.node_id.len() <= 256, || {
        info.node_id.clone()
    });
    let topological = plugin.has(PluginCapability::VolumeAccessibilityConstraints);
    report.is(
        "NodeGetInfo: topology goes with VOLUME_ACCESSIBILITY_CONSTRAINTS",
        topological || info.accessible_topology.is_none(),
        || "the node has a topology, and the plugin does not name the capability".to_owned(),
    );
    say_what_is_missing(&controller, &node, report);

    let offered = Offered { plugin, controller, node };
    if !offered.creates() {
        report.not_offered("the life of volumes", "volumes of this plugin are made elsewhere");
        return Ok(());
    }
    let since = wall_now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let directory = tempfile::Builder::new()
        .prefix("conformance-")
        .tempdir_in(&settings.directory)
        .with_context(|| format!("make a directory in {}", settings.directory.display()))?;
    let mut bench = Bench {
        client,
        hurried: CsiClient::new(socket, hurried()),
        offered,
        node: info,
        settings,
        run: format!("{:x}", since.as_micros()),
        directory,
        report,
    };
    bench.wrong_requests().await;
    for (number, (attachment_mode, access_mode)) in WAYS.into_iter().enumerate() {
        bench.report.about(format!("{attachment_mode} {access_mode}"));
        let capability = VolumeCapability { access_mode, attachment_mode, mount: Default::default() };
        Box::pin(bench.life(&capability, &format!("v{number}"))).await?;
    }
    bench.report.about("");
    bench.report.is(
        "no mount is left",
        crate::mounts_below(&bench.directory.path().display().to_string())?.is_empty(),
        || format!("below {}", bench.directory.path().display()),
    );
    Ok(())
}

fn say_what_is_missing(
    controller: &CapabilitySet<ControllerCapability>,
    node: &CapabilitySet<NodeCapability>,
    report: &mut Report,
) {
    for number in 1..=15 {
        if let Some(capability) = ControllerCapability::from_number(number).filter(|c| !controller.has(*c)) {
            report.not_offered(&format!("controller {}", capability.wire_name()), "");
        }
    }
    for number in 1..=6 {
        if let Some(capability) = NodeCapability::from_number(number).filter(|c| !node.has(*c)) {
            report.not_offered(&format!("node {}", capability.wire_name()), "");
        }
    }
}

/// Returns whether a name follows "GetPluginInfoResponse.name": domain name notation, at most 63 characters, a letter
/// or digit at both ends.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    name.len() <= 63
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '.'))
}

impl Bench<'_> {
    /// Sends requests without required fields, and requests for objects that do not exist.
    async fn wrong_requests(&mut self) {
        let capability = VolumeCapability::file_system(AccessMode::SingleNodeWriter);
        let nameless = CreateVolumeRequest { name: String::new(), ..self.creation("x", &capability) };
        let result = self.client.create_volume(nameless).await;
        self.report.refused("CreateVolume without a name", result, Class::InvalidArgument);
        let incapable = CreateVolumeRequest { capabilities: vec![], ..self.creation("x", &capability) };
        let result = self.client.create_volume(incapable).await;
        self.report.refused("CreateVolume without capabilities", result, Class::InvalidArgument);
        let result = self.client.delete_volume(self.delete_request(String::new())).await;
        self.report.refused("DeleteVolume without an id", result, Class::InvalidArgument);
        let nobody = self.name("nobody");
        let result = self.client.delete_volume(self.delete_request(nobody.clone())).await;
        self.report.ok("DeleteVolume of what does not exist", result);
        let validate = ValidateRequest {
            volume_id: nobody,
            capabilities: vec![capability],
            secrets: self.settings.secrets.clone(),
            ..Default::default()
        };
        let result = self.client.validate_capabilities(validate).await;
        self.report.refused("ValidateVolumeCapabilities of what does not exist", result, Class::NotFound);
        if self.offered.controller.has(ControllerCapability::GetCapacity) {
            let result = self.client.get_capacity(Default::default()).await;
            self.report.ok("GetCapacity", result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_domains() {
        for name in ["hostpath.caravan", "a", "org.example-1.csi"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a.", "a b", &"a".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_socket_is_needed() {
        let mut report = Report::new(|_| {});
        let error = endpoint("tcp://host:1", &Settings::default(), &mut report).expect_err("it is no socket");
        assert_eq!(error.to_string(), "the endpoint \"tcp://host:1\" is not a unix socket");
    }
}

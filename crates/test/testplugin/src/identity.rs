//! The Identity service.

use crate::Plugin;
use crate::endpoint::Services;
use caravan_proto::csi::{self, identity_server::Identity, plugin_capability as kind};
use tonic::{Request, Response, Status};

/// A number without a meaning in any version of the specification.
pub(crate) const UNKNOWN: i32 = 4711;

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        self.begin("GetPluginInfo", "")?;
        Ok(Response::new(csi::GetPluginInfoResponse {
            name: self.options.drivername.clone(),
            vendor_version: "v1.2.3-0-gabcdef".to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        self.begin("GetPluginCapabilities", "")?;
        let mut numbers = vec![
            kind::service::Type::ControllerService.into(),
            kind::service::Type::VolumeAccessibilityConstraints.into(),
        ];
        if self.options.unknown_capabilities {
            numbers.push(UNKNOWN);
        }
        let capabilities = numbers
            .into_iter()
            .map(|r#type| csi::PluginCapability {
                r#type: Some(kind::Type::Service(kind::Service { r#type })),
            })
            .collect();
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        self.begin("Probe", if self.options.services == Services::All { "" } else { "of a part" })?;
        // The field is optional, and without it the plugin is ready (CSI specification, `Probe`).
        Ok(Response::new(csi::ProbeResponse { ready: None }))
    }
}

//! The Identity service.

use crate::Plugin;
use crate::log::About;
use caravan_proto::csi::{self, identity_server::Identity, plugin_capability as kind};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        _: Request<csi::GetPluginInfoRequest>,
    ) -> Result<Response<csi::GetPluginInfoResponse>, Status> {
        let about = About { call: "GetPluginInfo", ..About::default() };
        let info = csi::GetPluginInfoResponse {
            name: self.options.drivername.clone(),
            vendor_version: "1".to_owned(),
            manifest: Default::default(),
        };
        self.call(about, move |_| Ok((info, false))).await
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        let about = About { call: "GetPluginCapabilities", ..About::default() };
        let r#type = kind::service::Type::ControllerService.into();
        let service = kind::Type::Service(kind::Service { r#type });
        let mut capabilities = vec![csi::PluginCapability { r#type: Some(service) }];
        if self.options.topology {
            let r#type = kind::service::Type::VolumeAccessibilityConstraints.into();
            let service = kind::Type::Service(kind::Service { r#type });
            capabilities.push(csi::PluginCapability { r#type: Some(service) });
        }
        let times = if self.options.capabilities_twice { 2 } else { 1 };
        let capabilities = capabilities.repeat(times);
        self.call(about, |_| Ok((csi::GetPluginCapabilitiesResponse { capabilities }, false))).await
    }

    async fn probe(&self, _: Request<csi::ProbeRequest>) -> Result<Response<csi::ProbeResponse>, Status> {
        let about = About { call: "Probe", ..About::default() };
        self.call(about, |_| Ok((csi::ProbeResponse { ready: Some(true) }, false))).await
    }
}

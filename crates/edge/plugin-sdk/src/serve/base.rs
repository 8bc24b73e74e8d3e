//! The service that drivers and device plugins share: identity, schema and configuration.

use crate::error::Cause;
use crate::hclspec::Spec;
use crate::serve::Reply;
use crate::{Info, config};
use async_trait::async_trait;
use caravan_proto::plugins::base::base_plugin_server::BasePlugin;
use caravan_proto::plugins::base::{
    ConfigSchemaRequest, ConfigSchemaResponse, NomadConfig, PluginInfoRequest, PluginInfoResponse,
    PluginType, SetConfigRequest, SetConfigResponse,
};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// A plugin of either kind, as the shared service sees it.
#[async_trait]
pub(crate) trait Plugin: Send + Sync + 'static {
    /// The kind of the plugin.
    const KIND: PluginType;
    /// The configuration of the plugin.
    type Config: DeserializeOwned + Send;

    /// Returns name and version.
    fn info(&self) -> Info;

    /// Returns the schema of the configuration.
    fn config_schema(&self) -> Option<Spec>;

    /// Receives the configuration.
    async fn configure(&self, config: Self::Config, agent: Option<NomadConfig>) -> Result<(), Status>;

    /// Returns the status of a configuration that cannot be read.
    fn unreadable(cause: Cause) -> Status;
}

/// The service for the shared part of a plugin.
pub(crate) struct Base<P>(pub(crate) Arc<P>);

#[async_trait]
impl<P: Plugin> BasePlugin for Base<P> {
    async fn plugin_info(&self, _: Request<PluginInfoRequest>) -> Reply<PluginInfoResponse> {
        Ok(Response::new(self.0.info().into_response(P::KIND)))
    }

    async fn config_schema(&self, _: Request<ConfigSchemaRequest>) -> Reply<ConfigSchemaResponse> {
        let spec = self.0.config_schema().map(Spec::into_message);
        Ok(Response::new(ConfigSchemaResponse { spec }))
    }

    async fn set_config(&self, request: Request<SetConfigRequest>) -> Reply<SetConfigResponse> {
        let request = request.into_inner();
        let config = config::read(&request.msgpack_config).map_err(P::unreadable)?;
        self.0.configure(config, request.nomad_config).await?;
        Ok(Response::new(SetConfigResponse {}))
    }
}

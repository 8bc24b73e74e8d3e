//! The services by which an agent supervises any plugin.

use super::stream::Until as _;
use async_trait::async_trait;
use caravan_proto::plugins::health::health_check_response::ServingStatus;
use caravan_proto::plugins::health::health_server::Health;
use caravan_proto::plugins::health::{HealthCheckRequest, HealthCheckResponse};
use caravan_proto::plugins::host::grpc_broker_server::GrpcBroker;
use caravan_proto::plugins::host::grpc_controller_server::GrpcController;
use caravan_proto::plugins::host::grpc_stdio_server::GrpcStdio;
use caravan_proto::plugins::host::{ConnInfo, Empty, StdioData};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

/// Health, controller, standard streams and broker.
#[derive(Clone)]
pub(super) struct HostServices {
    /// The token that is cancelled when the process ends.
    pub(super) cancel: CancellationToken,
}

#[async_trait]
impl Health for HostServices {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match request.into_inner().service.as_str() {
            "" | "plugin" => Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() })),
            other => Err(Status::not_found(format!("unknown service {other:?}"))),
        }
    }
}

#[async_trait]
impl GrpcController for HostServices {
    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        tracing::debug!("the agent requested the plugin to shut down");
        self.cancel.cancel();
        Ok(Response::new(Empty {}))
    }
}

#[async_trait]
impl GrpcStdio for HostServices {
    /// Stays open without data: the plugin writes to its own standard streams, which the agent reads.
    async fn stream_stdio(&self, _: Request<Empty>) -> Result<Response<BoxStream<StdioData>>, Status> {
        Ok(Response::new(tokio_stream::pending().until(&self.cancel)))
    }
}

#[async_trait]
impl GrpcBroker for HostServices {
    /// Stays open without data: neither drivers nor devices use connections besides the first.
    async fn start_stream(
        &self,
        request: Request<Streaming<ConnInfo>>,
    ) -> Result<Response<BoxStream<ConnInfo>>, Status> {
        let mut incoming = request.into_inner();
        // The stream is read to its end, so that the agent's messages do not fill the window of the connection.
        tokio::spawn(async move { while let Ok(Some(_)) = incoming.message().await {} });
        Ok(Response::new(tokio_stream::pending().until(&self.cancel)))
    }
}

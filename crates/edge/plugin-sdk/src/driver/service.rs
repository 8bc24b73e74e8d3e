//! The gRPC services of a driver.

use super::convert::{capabilities, duration, exit, fingerprint, started, status, task};
use super::{DriverPlugin, Events, Host, StopRequest, TaskHandle, exec};
use crate::error::Cause;
use crate::hclspec::Spec;
use crate::serve::Reply;
use crate::serve::base::Plugin;
use crate::serve::stream::{self, Until as _};
use crate::{Info, TaskError, config};
use async_trait::async_trait;
use caravan_proto::plugins::base::{NomadConfig, PluginType};
use caravan_proto::plugins::driver::{self as wire, driver_server::Driver};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

/// The services of a driver.
pub(crate) struct DriverService<P> {
    plugin: Arc<P>,
    events: Events,
    /// The token that is cancelled when the process ends.
    cancel: CancellationToken,
}

impl<P: DriverPlugin> DriverService<P> {
    pub(crate) fn new(plugin: P, cancel: CancellationToken) -> Self {
        Self { plugin: Arc::new(plugin), events: Events::new(), cancel }
    }
}

fn reply<T>(result: Result<T, TaskError>) -> Reply<T> {
    result.map(Response::new).map_err(TaskError::into_status)
}

fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("the message has no {what}"))
}

#[async_trait]
impl<P: DriverPlugin> Plugin for DriverService<P> {
    const KIND: PluginType = PluginType::Driver;
    type Config = P::Config;

    fn info(&self) -> Info {
        self.plugin.info()
    }

    fn config_schema(&self) -> Option<Spec> {
        self.plugin.config_schema()
    }

    async fn configure(&self, config: P::Config, agent: Option<NomadConfig>) -> Result<(), Status> {
        let driver = agent.and_then(|config| config.driver).unwrap_or_default();
        let host = Host {
            min_port: driver.client_min_port,
            max_port: driver.client_max_port,
            topology: driver.topology,
            events: self.events.clone(),
        };
        self.plugin.configure(config, host).await.map_err(TaskError::into_status)
    }

    fn unreadable(cause: Cause) -> Status {
        TaskError::Failed(cause).into_status()
    }
}

#[async_trait]
impl<P: DriverPlugin> Driver for DriverService<P> {
    async fn init(&self, _: Request<wire::InitRequest>) -> Reply<wire::InitResponse> {
        Ok(Response::new(wire::InitResponse {}))
    }

    async fn task_config_schema(
        &self,
        _: Request<wire::TaskConfigSchemaRequest>,
    ) -> Reply<wire::TaskConfigSchemaResponse> {
        let spec = Some(self.plugin.task_schema().into_message());
        Ok(Response::new(wire::TaskConfigSchemaResponse { spec }))
    }

    async fn capabilities(&self, _: Request<wire::CapabilitiesRequest>) -> Reply<wire::CapabilitiesResponse> {
        let capabilities = Some(capabilities(self.plugin.capabilities()));
        Ok(Response::new(wire::CapabilitiesResponse { capabilities }))
    }

    async fn fingerprint(
        &self,
        _: Request<wire::FingerprintRequest>,
    ) -> Reply<BoxStream<wire::FingerprintResponse>> {
        let interval = self.plugin.fingerprint_interval();
        let look =
            stream::look(
                &self.plugin,
                |plugin| async move { Ok(Some(fingerprint(plugin.fingerprint().await))) },
            );
        Ok(Response::new(stream::every(interval, look).until(&self.cancel)))
    }

    async fn recover_task(
        &self,
        request: Request<wire::RecoverTaskRequest>,
    ) -> Reply<wire::RecoverTaskResponse> {
        let handle = request.into_inner().handle.ok_or_else(|| missing("handle"))?;
        let message = handle.config.ok_or_else(|| missing("task"))?;
        let read =
            || Ok(TaskHandle { task: task(message)?, state: config::read_state(&handle.driver_state)? });
        let result = match read() {
            Ok(handle) => self.plugin.recover_task(handle).await,
            Err(error) => Err(TaskError::Failed(error)),
        };
        reply(result.map(|()| wire::RecoverTaskResponse {}))
    }

    async fn start_task(&self, request: Request<wire::StartTaskRequest>) -> Reply<wire::StartTaskResponse> {
        let message = request.into_inner().task.ok_or_else(|| missing("task"))?;
        let result = match task(message.clone()) {
            Ok(task) => self.plugin.start_task(task).await,
            Err(error) => Err(TaskError::Failed(error)),
        };
        reply(result.and_then(|result| started(message, result).map_err(TaskError::Failed)))
    }

    async fn wait_task(&self, request: Request<wire::WaitTaskRequest>) -> Reply<wire::WaitTaskResponse> {
        let id = request.into_inner().task_id;
        let result = self.unless_ended(self.plugin.wait_task(&id)).await?;
        reply(result.map(|result| wire::WaitTaskResponse {
            result: Some(exit(&result)),
            err: result.message.unwrap_or_default(),
        }))
    }

    async fn stop_task(&self, request: Request<wire::StopTaskRequest>) -> Reply<wire::StopTaskResponse> {
        let request = request.into_inner();
        let signal = Some(request.signal).filter(|signal| !signal.is_empty());
        let stop = StopRequest { timeout: duration(request.timeout), signal };
        let result = self.unless_ended(self.plugin.stop_task(&request.task_id, stop)).await?;
        reply(result.map(|()| wire::StopTaskResponse {}))
    }

    async fn destroy_task(
        &self,
        request: Request<wire::DestroyTaskRequest>,
    ) -> Reply<wire::DestroyTaskResponse> {
        let request = request.into_inner();
        let result = self.plugin.destroy_task(&request.task_id, request.force).await;
        reply(result.map(|()| wire::DestroyTaskResponse {}))
    }

    async fn inspect_task(
        &self,
        request: Request<wire::InspectTaskRequest>,
    ) -> Reply<wire::InspectTaskResponse> {
        let id = request.into_inner().task_id;
        let result = self.plugin.inspect_task(&id).await;
        reply(result.map(|found| status(id, found)))
    }

    async fn task_stats(
        &self,
        request: Request<wire::TaskStatsRequest>,
    ) -> Reply<BoxStream<wire::TaskStatsResponse>> {
        let request = request.into_inner();
        let look = stream::look(&self.plugin, move |plugin| {
            let id = request.task_id.clone();
            async move {
                let stats = plugin.task_stats(&id).await.map_err(TaskError::into_stats_status)?;
                Ok(stats.map(|stats| wire::TaskStatsResponse { stats: Some(stats.into_message(id)) }))
            }
        });
        let interval = stream::interval(duration(request.collection_interval));
        Ok(Response::new(stream::every(interval, look).until(&self.cancel)))
    }

    async fn task_events(
        &self,
        _: Request<wire::TaskEventsRequest>,
    ) -> Reply<BoxStream<wire::DriverTaskEvent>> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut events = self.events.subscribe();
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = sender.closed() => return,
                };
                match event {
                    Ok(event) => {
                        if sender.send(Ok(event)).await.is_err() {
                            return;
                        }
                    }
                    Err(RecvError::Lagged(count)) => tracing::warn!(count, "events of tasks were lost"),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver).until(&self.cancel)))
    }

    async fn shutdown(&self, _: Request<wire::ShutdownRequest>) -> Reply<wire::ShutdownResponse> {
        self.plugin.shutdown().await;
        Ok(Response::new(wire::ShutdownResponse {}))
    }

    async fn signal_task(
        &self,
        request: Request<wire::SignalTaskRequest>,
    ) -> Reply<wire::SignalTaskResponse> {
        let request = request.into_inner();
        let result = self.plugin.signal_task(&request.task_id, &request.signal).await;
        reply(result.map(|()| wire::SignalTaskResponse {}))
    }

    async fn exec_task(&self, request: Request<wire::ExecTaskRequest>) -> Reply<wire::ExecTaskResponse> {
        let request = request.into_inner();
        let timeout = duration(request.timeout);
        let call = self.plugin.exec_task(&request.task_id, request.command, timeout);
        let result = self.unless_ended(call).await?;
        reply(result.map(|done| wire::ExecTaskResponse {
            result: Some(exit(&done.exit)),
            stdout: done.stdout,
            stderr: done.stderr,
        }))
    }

    async fn exec_task_streaming(
        &self,
        request: Request<Streaming<wire::ExecTaskStreamingRequest>>,
    ) -> Reply<BoxStream<wire::ExecTaskStreamingResponse>> {
        let output = exec::serve(Arc::clone(&self.plugin), request.into_inner(), self.cancel.clone()).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(output))))
    }

    async fn create_network(
        &self,
        request: Request<wire::CreateNetworkRequest>,
    ) -> Reply<wire::CreateNetworkResponse> {
        let request = request.into_inner();
        let result = self.plugin.create_network(&request.alloc_id, &request.hostname).await;
        reply(result.map(|network| wire::CreateNetworkResponse {
            isolation_spec: Some(network.spec),
            created: network.created,
        }))
    }

    async fn destroy_network(
        &self,
        request: Request<wire::DestroyNetworkRequest>,
    ) -> Reply<wire::DestroyNetworkResponse> {
        let request = request.into_inner();
        let result = self.plugin.destroy_network(&request.alloc_id, request.isolation_spec).await;
        reply(result.map(|()| wire::DestroyNetworkResponse {}))
    }
}

impl<P: DriverPlugin> DriverService<P> {
    /// Waits for a call that may last long. The end of the process ends the call, so that the agent does not wait.
    async fn unless_ended<T>(&self, call: impl Future<Output = T> + Send) -> Result<T, Status> {
        tokio::select! {
            result = call => Ok(result),
            () = self.cancel.cancelled() => Err(Status::unavailable("the plugin ends")),
        }
    }
}

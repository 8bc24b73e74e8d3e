//! A fleet behind the HTTP API and the web page.

use crate::cluster::{Cluster, FleetError};
use crate::load::{self, Load};
use caravan_http::{AgentInfo, HttpState, Transport};
use caravan_server::JobSubmission;
use caravan_types::job::{Job, JobType, Parameterized};
use caravan_types::node::Node;
use caravan_types::plugin::{CsiInfo, CsiNodeInfo};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, VolumeRequestBody};
use caravan_types::{Namespace, VolumeId};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The plugin of the volumes.
const PLUGIN: &str = "fleet";
/// The number of nodes that run the plugin.
const PLUGIN_NODES: usize = 20;
/// The number of volumes of one request.
const BATCH: usize = 100;

/// The size of the state to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of running allocations.
    pub allocs: u64,
    /// The number of allocations of each job.
    pub each: u32,
    /// The number of volumes.
    pub volumes: usize,
    /// The number of further jobs, which wait for their dispatch.
    pub jobs: usize,
}

/// Fills a cluster: the nodes with the plugin, the jobs, the volumes. `cluster` has the other nodes.
///
/// # Errors
/// Fails if the server refuses an object, or a job is not completely placed.
pub async fn fill(cluster: &mut Cluster, size: Size) -> Result<(), FleetError> {
    let first = plain_nodes(size);
    cluster.join_as(first..size.nodes, with_plugin).await?;
    let (allocs, each) = (size.allocs, size.each.max(1));
    let load = Load { allocs, each, in_flight: 3, ahead: 20_000, step: (allocs / 5).max(1) };
    load::run(cluster, &load, |_| ()).await?;
    for n in 0..size.jobs {
        let submission = JobSubmission { draft: parameterized(n).into(), ..JobSubmission::default() };
        cluster.handle.jobs().register(submission).await?;
    }
    let names: Vec<usize> = (0..size.volumes).collect();
    for batch in names.chunks(BATCH) {
        let volumes = batch.iter().map(|n| volume(*n)).collect();
        cluster.handle.volumes().register(&Namespace::new("default"), volumes).await?;
    }
    Ok(())
}

/// Returns the number of nodes without the plugin, which join first.
pub fn plain_nodes(size: Size) -> usize {
    size.nodes.saturating_sub(PLUGIN_NODES)
}

fn with_plugin(node: &mut Node) {
    let info = CsiInfo {
        plugin_id: PLUGIN.into(),
        healthy: true,
        provider: "fleet.example".into(),
        node_info: Some(CsiNodeInfo {
            id: node.id.to_string(),
            max_volumes: i64::MAX,
            ..CsiNodeInfo::default()
        }),
        ..CsiInfo::default()
    };
    node.csi_node_plugins.insert(PLUGIN.into(), info);
}

/// Returns a job without evaluations: it runs only when it is dispatched.
fn parameterized(n: usize) -> Job {
    let mut job = load::job(&format!("mail-{n:05}"), JobType::Batch, 1);
    job.parameterized_job = Some(Parameterized { payload: "optional".into(), ..Parameterized::default() });
    job
}

fn volume(n: usize) -> VolumeRequestBody {
    let id = format!("volume-{n:05}");
    VolumeRequestBody {
        id: VolumeId::new(id.as_str()),
        namespace: Namespace::new("default"),
        name: id.clone(),
        external_id: id,
        plugin_id: PLUGIN.into(),
        requested_capabilities: vec![Capability {
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
        }],
        ..VolumeRequestBody::default()
    }
}

/// The HTTP API of a cluster. It ends when dropped.
#[derive(Debug)]
pub struct Web {
    /// The address of the API.
    pub address: SocketAddr,
    cancel: CancellationToken,
}

impl Web {
    /// Serves the API of a cluster.
    ///
    /// # Errors
    /// Fails if the address cannot be used.
    pub async fn start(cluster: &Cluster, address: SocketAddr) -> Result<Self, FleetError> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let info = AgentInfo {
            region: "global".into(),
            datacenter: "dc1".into(),
            name: "fleet".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            http_addr: address.to_string(),
            ..AgentInfo::default()
        };
        let state = HttpState {
            server: Some(cluster.handle.clone()),
            info: Arc::new(info),
            // All connections come from one address.
            transport: Arc::new(Transport { connections_per_client: 0, ..Transport::default() }),
            ..HttpState::default()
        };
        let cancel = CancellationToken::new();
        let ending = cancel.clone();
        tokio::spawn(async move {
            if let Err(error) = caravan_http::serve(listener, state, ending).await {
                tracing::error!(%error, "the listener failed");
            }
        });
        Ok(Self { address, cancel })
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

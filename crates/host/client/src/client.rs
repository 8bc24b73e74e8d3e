//! The client: its construction, its background tasks, and the handle for other parts of the agent.

mod left;

use self::left::{end_mounts, look_for_left_mounts};
use crate::allocs::{Allocs, AllocsParts};
use crate::config::ClientConfig;
use crate::contact::{ContactParts, LastHeartbeat};
use crate::cores::Cores;
use crate::csi::{CsiFault, Ledger, LeftMounts, Manager, Registry, VolumeManager};
use crate::devices::{DeviceManager, Holders};
use crate::drivers::DriverManager;
use crate::dynamic_users::DynamicUsers;
use crate::fs::AllocFs;
use crate::host_volumes::{HostVolumeFault, HostVolumes, check_fixed};
use crate::lease::NodeLease;
use crate::metadata::NodeMetadata;
use crate::networks::Networks;
use crate::networks::cni::Plugged;
use crate::node::NodeState;
use crate::reporter::Reporter;
use crate::runner::{DriverNetworks, Fence, Outlets, Planner, RunnerParts, Site, Sources, TaskHookParts};
use crate::servers::{Link, Servers};
use crate::state::{Identity, Loaded, Store};
use crate::task_api::Served;
use crate::{ClientError, contact, env, fingerprint, metadata};
use crate::{NeighbourKind, Neighbours};
use caravan_csi::{Class, CsiError, Deadlines};
use caravan_drivers::{DevicePlugin, Driver, ExecOutput, TaskId, Usage};
use caravan_messages::{ControllerAnswer, ControllerCall, Done, NodeDetach, NodeExpand, NodeExpanded};
use caravan_rpc::{Code, RouterBuilder, RpcError, methods};
use caravan_sys::files::{durable_dir, durable_private_dir, sync_dir};
use caravan_sys::mount::make_shared_tree;
use caravan_types::alloc::{Allocation, ClientStatus, TaskRunState, TaskState};
use caravan_types::node::{Node, NodeSecret};
use caravan_types::small::Map;
use caravan_types::{AllocId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A client whose state is open: the identity of its node is loaded, and nothing runs. The connection to the servers
/// needs this identity, so the agent creates the connection between [`Client::open`] and [`Client::connect`].
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    csi_dir: PathBuf,
    store: Store,
    loaded: Loaded,
    lease: NodeLease,
    identity: Arc<Identity>,
}

impl Client {
    /// Opens the client state and loads its content.
    ///
    /// # Errors
    /// If a directory cannot be created, or the state cannot be opened or read.
    pub fn open(mut config: ClientConfig) -> Result<Self, ClientError> {
        config.meta = metadata::completed(config.meta);
        let csi_dir = config.state_dir.join("csi");
        let made = |dir: &PathBuf| {
            durable_private_dir(dir).map_err(ClientError::kernel(format!("{} cannot be used", dir.display())))
        };
        check_fixed(&config.host_volumes)?;
        made(&config.state_dir)?;
        made(&csi_dir)?;
        // Tasks of other users must pass through the directory, but must not list it.
        let holds = format!("{} cannot hold the allocations", config.alloc_dir.display());
        durable_dir(&config.alloc_dir, 0o711).map_err(ClientError::kernel(holds))?;
        let (store, mut loaded) = Store::open((!config.dev).then_some(config.state_dir.as_path()))?;
        let lease = NodeLease::open(&config.state_dir)?;
        // Makes the directory entries of both files durable; the files may be new.
        let unflushed = format!("{} cannot be flushed", config.state_dir.display());
        sync_dir(&config.state_dir).map_err(ClientError::kernel(unflushed))?;
        let identity = Arc::new(loaded.identity.take().unwrap_or_else(|| {
            let identity = new_identity();
            store.put_identity(&identity).later();
            identity
        }));
        Ok(Self { config, csi_dir, store, loaded, lease, identity })
    }

    /// Returns the id of the node.
    pub fn node_id(&self) -> &NodeId {
        &self.identity.node_id
    }

    /// Returns the secret by which the servers recognize the node.
    pub fn node_secret(&self) -> &NodeSecret {
        &self.identity.secret
    }

    /// Adds plugins that find the node's devices.
    pub fn add_devices(&mut self, devices: Vec<Arc<dyn DevicePlugin>>) {
        self.config.devices.extend(devices);
    }

    /// Connects the client with its servers and drivers. Nothing runs before [`Service::run`].
    ///
    /// # Errors
    /// If mounts of an earlier agent cannot be removed.
    pub fn connect(
        self,
        servers: Arc<dyn Servers>,
        drivers: Vec<Arc<dyn Driver>>,
    ) -> Result<(Handle, Service), ClientError> {
        let Self { mut config, csi_dir, store, loaded, lease, identity } = self;
        config.cgroup_parent = crate::groups::settle(&config.cgroup_parent);
        let shared = share(&config);
        let neighbours = with_local(&config, config.neighbours.clone());
        let cores = Cores::open(&config);
        config.bridge.owner = identity.node_id.to_string();
        let no_bridge = match config.wants_fingerprint("bridge") {
            true => crate::networks::obstacle(&config),
            false => Some("the configuration excludes its fingerprint".to_owned()),
        };
        let mut node = fingerprint::read(&config, &identity, cores.reservable(), no_bridge.is_none());
        node.meta = metadata::in_force(&config.meta, &loaded.node_meta);
        let node = NodeState::new(node);
        if let Some(reason) = no_bridge {
            tracing::warn!(reason, "the node offers no networks of mode bridge");
            node.event(
                "Network",
                &format!("Networks of mode bridge are not offered: {reason}"),
                BTreeMap::new(),
            );
        }
        let cni = Plugged::open(&config, store.clone(), node.clone(), loaded.plugged);
        let bridge = Networks::open(
            &config,
            store.clone(),
            node.clone(),
            loaded.attachments,
            loaded.last_address,
            cni.clone(),
        );
        let shutdown = CancellationToken::new();
        let here: BTreeSet<AllocId> = loaded.allocs.iter().map(|a| a.id.clone()).collect();
        crate::runner::sweep(&config.state_dir, |id| here.contains(id))?;
        let is_here = |name: &str| here.iter().any(|id| name.starts_with(&format!("{id}-")));
        crate::runner::sweep_unveiled(&config.alloc_mounts_dir, is_here)?;
        let registry = Registry::restore(loaded.registrations, store.clone(), |id| here.contains(id));
        let deadlines = Deadlines::default();
        let plugins = Manager::new(registry, node.clone(), deadlines);
        let volumes = VolumeManager::new(
            Ledger::new(loaded.claims),
            crate::csi::volumes::Parts {
                store: store.clone(),
                node: node.clone(),
                plugins: plugins.clone(),
                servers: Arc::clone(&servers),
                identity: Arc::clone(&identity),
                csi_dir: csi_dir.clone(),
                cancel: shutdown.clone(),
            },
        );
        let left_mounts = LeftMounts::new(csi_dir.clone(), node.clone(), volumes.clone());
        let host_volumes =
            HostVolumes::new(&config, &identity, store.clone(), node.clone(), loaded.host_volumes);
        let link = Link { identity, servers };
        let plugged = std::mem::take(&mut config.devices);
        let devices = DeviceManager::new(plugged, config.stats_interval, node.clone());
        let holders = Holders::default();
        let config = Arc::new(config);
        let drivers = DriverManager::new(drivers, &config, node.clone());
        let (reporter, meters) = (Reporter::default(), caravan_meters::Meters::default());
        let (task_api, heartbeat) = (Served::default(), LastHeartbeat::default());
        let restored = CancellationToken::new();
        let networks = DriverNetworks::new(drivers.clone(), store.clone(), loaded.networks, shutdown.clone());
        let users = loaded.tasks.iter().filter(|(_, record)| record.state.state != TaskRunState::Dead);
        let users = users.filter_map(|(key, record)| Some((key.clone(), record.dynamic_uid?)));
        let dynamic_users = DynamicUsers::new(config.dynamic_users.clone(), users);
        let planner = Arc::new(Planner {
            mounts_dir: config.alloc_mounts_dir.clone(),
            dynamic_users,
            drivers: drivers.clone(),
            node: node.clone(),
            region: config.region.clone(),
            cgroup_parent: config.cgroup_parent.clone(),
            csi_dir: csi_dir.clone(),
            host_env: env::host_env(host_variables(), config.option_list("env.denylist")),
        });
        let runners = RunnerParts {
            outlets: Outlets { store: store.clone(), reporter: reporter.clone(), meters: meters.clone() },
            alloc_dir: config.alloc_dir.clone(),
            dev: config.dev,
            planner: Arc::clone(&planner),
            site: Arc::new(Site {
                cores: cores.clone(),
                state_dir: config.state_dir.clone(),
                cgroup_parent: config.cgroup_parent.clone(),
                max_kill_timeout: config.max_kill_timeout,
                shutdown: shutdown.clone(),
            }),
            tasks: TaskHookParts {
                link: link.clone(),
                planner,
                sources: Sources { volumes: volumes.clone(), host_volumes: host_volumes.clone() },
                csi_dir: csi_dir.clone(),
                fence: Fence { lease: lease.clone(), volumes: volumes.clone() },
                registry: plugins.registry().clone(),
                left_mounts: left_mounts.clone(),
                deadlines,
                devices: devices.clone(),
                holders: holders.clone(),
            },
            networks: networks.clone(),
            api: Arc::clone(&task_api),
            bridge: bridge.clone(),
        };
        let parts = AllocsParts {
            store: store.clone(),
            node: node.clone(),
            cores: cores.clone(),
            holders,
            volumes: volumes.clone(),
            shutdown: shutdown.clone(),
        };
        let allocs = Allocs::new(parts, runners);
        let neighbours = Arc::new(watch::Sender::new(neighbours));
        let handle = Handle {
            link: link.clone(),
            config: Arc::clone(&config),
            node: node.clone(),
            meta: Arc::new(NodeMetadata {
                fixed: config.meta.clone(),
                dynamic: parking_lot::Mutex::new(loaded.node_meta),
                node: node.clone(),
                store: store.clone(),
            }),
            restored: restored.clone(),
            task_api,
            heartbeat: Arc::clone(&heartbeat),
            meters,
            plugins: plugins.clone(),
            volumes: volumes.clone(),
            host_volumes: host_volumes.clone(),
            allocs: allocs.clone(),
            neighbours: Arc::clone(&neighbours),
            devices: devices.clone(),
        };
        let seen = AtomicU64::new(0);
        let contact =
            ContactParts { link, node, drivers, devices, host_volumes, lease, heartbeat, seen, reporter };
        let service = Service {
            config,
            csi_dir,
            store,
            contact,
            plugins,
            volumes,
            left_mounts,
            cores,
            shutdown,
            all_restored: restored,
            allocs,
            neighbours,
            bridge,
            cni,
            restored: loaded.allocs,
            records: loaded.tasks,
            networks,
            shared,
        };
        Ok((handle, service))
    }
}

/// Keeps the Consul and Vault integrations whose fingerprints are enabled.
fn with_local(config: &ClientConfig, mut neighbours: Neighbours) -> Neighbours {
    neighbours.retain(|neighbour| {
        config.wants_fingerprint(match neighbour.kind {
            NeighbourKind::Consul => "consul",
            NeighbourKind::Vault => "vault",
        })
    });
    neighbours
}

/// Gives the client's directories shared mount propagation, so that mounts of plugins reach the host and other tasks.
/// Returns the directories that were bind-mounted for that.
fn share(config: &ClientConfig) -> Vec<PathBuf> {
    let mut bound = Vec::new();
    for dir in [&config.state_dir, &config.alloc_dir] {
        match make_shared_tree(dir) {
            Ok(true) => bound.push(dir.clone()),
            Ok(false) => {}
            Err(error) => tracing::warn!(
                path = %dir.display(), error = caravan_sys::describe(&error),
                "directory cannot be shared: mounts of CSI plugins in their own root do not reach the host"
            ),
        }
    }
    bound
}

fn new_identity() -> Identity {
    let uuid = || uuid::Uuid::new_v4().to_string();
    Identity { node_id: NodeId::from(uuid()), secret: NodeSecret::new(uuid()), signed: Default::default() }
}

fn host_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
}

/// The part of a client that runs it.
#[derive(Debug)]
pub struct Service {
    config: Arc<ClientConfig>,
    csi_dir: PathBuf,
    store: Store,
    contact: ContactParts,
    plugins: Manager,
    volumes: VolumeManager,
    left_mounts: LeftMounts,
    cores: Cores,
    /// The token that is cancelled when the agent ends; tasks keep running.
    shutdown: CancellationToken,
    /// The token that is cancelled once the allocations of an earlier agent are restored.
    all_restored: CancellationToken,
    allocs: Allocs,
    restored: Vec<Allocation>,
    records: BTreeMap<(AllocId, String), crate::state::TaskRecord>,
    networks: DriverNetworks,
    shared: Vec<PathBuf>,
    neighbours: Arc<watch::Sender<Neighbours>>,
    bridge: Networks,
    cni: Plugged,
}

impl Service {
    /// Runs until cancelled. Tasks keep running afterwards, but a development agent stops and removes its tasks.
    pub async fn run(self, cancel: CancellationToken) {
        let Self { config, csi_dir, store, contact, plugins, volumes, left_mounts, .. } = self;
        let Self { cores, shutdown, all_restored, allocs, restored, mut records, networks, .. } = self;
        let Self { shared, neighbours, bridge, cni, .. } = self;
        let stop = CancellationToken::new();
        let tracker = TaskTracker::new();
        tracker.spawn(contact.drivers.clone().run(stop.child_token()));
        tracker.spawn(contact.drivers.clone().route_events(allocs.clone(), stop.child_token()));
        tracker.spawn(contact.devices.clone().run(stop.child_token()));
        tracker.spawn(contact.drivers.clone().share_processors(cores.changes(), stop.child_token()));
        tracker.spawn(plugins.clone().run(stop.child_token()));
        tracker.spawn(volumes.clone().watch_mounts(stop.child_token()));
        tracker.spawn(volumes.clone().watch_usage(stop.child_token()));
        tracker.spawn(contact.host_volumes.clone().run(stop.child_token()));
        let (node, looked) = (contact.node.clone(), stop.child_token());
        let minding = fingerprint::neighbours::mind(node, neighbours.subscribe());
        tracker.spawn(async move {
            tokio::select! {
                () = looked.cancelled() => {}
                () = minding => {}
            }
        });
        let drivers = contact.drivers.clone();
        let here: BTreeSet<AllocId> = restored.iter().map(|a| a.id.clone()).collect();
        volumes.adopt(|id| here.contains(id));
        let known = here.clone();
        tracker.spawn(bridge.clone().run(move |id| known.contains(id), stop.child_token()));
        let known = here.clone();
        tracker.spawn(cni.run_until(move |id| known.contains(id), stop.child_token()));
        tracker.spawn(networks.sweep(move |id| here.contains(id)));
        tracker.spawn(look_for_left_mounts(left_mounts, &csi_dir, &restored, &records, stop.child_token()));
        for alloc in restored {
            let mut own = BTreeMap::new();
            records.retain(|(id, task), record| {
                let mine = *id == alloc.id;
                if mine {
                    own.insert(task.clone(), std::mem::take(record));
                }
                !mine
            });
            allocs.restore(alloc, own);
        }
        cores.restored();
        all_restored.cancel();
        let staying = {
            let (allocs, end) = (allocs.clone(), stop.child_token());
            tokio::spawn(async move {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = contact::stay(contact, allocs) => {}
                }
            })
        };
        cancel.cancelled().await;
        if config.dev {
            let limit = config.max_kill_timeout + Duration::from_secs(10);
            if tokio::time::timeout(limit, allocs.destroy_all()).await.is_err() {
                tracing::warn!("some allocations could not be ended in time");
            }
        }
        shutdown.cancel();
        stop.cancel();
        if staying.await.is_err() {
            tracing::error!("the task that keeps contact with the servers panicked");
        }
        allocs.ended().await;
        volumes.ended().await;
        tracker.close();
        tracker.wait().await;
        drivers.shut_down().await;
        if config.dev {
            bridge.remove_bridge().await;
        }
        store.close();
        if config.dev {
            end_mounts(&config, &shared);
        }
    }
}

/// A handle to a running client. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) link: Link,
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) meta: Arc<NodeMetadata>,
    /// The token that is cancelled once the allocations of an earlier agent are restored.
    pub(crate) restored: CancellationToken,
    /// The server for API requests of tasks.
    pub(crate) task_api: Served,
    pub(crate) allocs: Allocs,
    node: NodeState,
    heartbeat: LastHeartbeat,
    meters: caravan_meters::Meters,
    plugins: Manager,
    volumes: VolumeManager,
    host_volumes: HostVolumes,
    neighbours: Arc<watch::Sender<Neighbours>>,
    pub(crate) devices: DeviceManager,
}

impl Handle {
    /// Replaces the Consul and Vault servers that the node fingerprints.
    pub fn set_neighbours(&self, neighbours: Neighbours) {
        let with_local = with_local(&self.config, neighbours);
        self.neighbours.send_if_modified(|now| {
            let new = *now != with_local;
            *now = with_local;
            new
        });
    }

    /// Returns the node's id.
    pub fn node_id(&self) -> NodeId {
        self.link.identity.node_id.clone()
    }
    /// Returns the node's secret, for connections that must prove the node's identity.
    pub fn node_secret(&self) -> NodeSecret {
        self.link.identity.secret.clone()
    }
    /// Returns the node as it is reported to the servers.
    pub fn node(&self) -> Arc<Node> {
        self.node.get()
    }
    /// Returns the time since the last answered heartbeat and the TTL that the servers returned; `None` before the
    /// first.
    pub fn last_heartbeat(&self) -> Option<(Duration, Duration)> {
        let last = *self.heartbeat.borrow();
        last.map(|(at, ttl)| (at.elapsed(), ttl))
    }
    /// Waits until a server has answered this agent.
    pub async fn answered(&self) {
        // This value owns the sender, so it is never dropped.
        let _ = self.heartbeat.subscribe().wait_for(Option::is_some).await;
    }
    /// Returns the ids of the allocations on this node.
    pub fn alloc_ids(&self) -> Vec<AllocId> {
        self.allocs.ids()
    }
    /// Returns the allocations on this node with their client status.
    pub fn allocs(&self) -> Vec<(Arc<Allocation>, ClientStatus)> {
        self.allocs.all().iter().map(|runner| (runner.alloc(), runner.status())).collect()
    }
    /// Returns whether an allocation is on this node.
    pub fn has_alloc(&self, alloc: &AllocId) -> bool {
        self.allocs.get(alloc).is_ok()
    }
    /// Returns the directory of an allocation.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn alloc_dir(&self, alloc: &AllocId) -> Result<PathBuf, ClientError> {
        Ok(self.allocs.get(alloc)?.dir().root().to_owned())
    }
    /// Returns the directory of the log files of an allocation's tasks.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn task_logs(&self, alloc: &AllocId) -> Result<PathBuf, ClientError> {
        Ok(self.allocs.get(alloc)?.dir().logs())
    }
    /// Returns the files of an allocation, as far as users may see them.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn fs(&self, alloc: &AllocId) -> Result<AllocFs, ClientError> {
        let runner = self.allocs.get(alloc)?;
        Ok(AllocFs::new(runner.dir().root(), runner.task_names(), runner.users()))
    }
    /// Returns whether a task ever started, so that it has logs.
    ///
    /// # Errors
    /// If the allocation or the task is unknown.
    pub fn task_started(&self, alloc: &AllocId, task: &str) -> Result<bool, ClientError> {
        self.allocs.get(alloc)?.task_started(task)
    }
    /// Returns the status of an allocation and the states of its tasks, as recorded on this node.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn status(&self, alloc: &AllocId) -> Result<(ClientStatus, Map<String, TaskState>), ClientError> {
        let runner = self.allocs.get(alloc)?;
        Ok((runner.status(), runner.task_states()))
    }
    /// Restarts a task, or every running task if no name is given. `all` only changes the reason in the event.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, or the task does not run.
    pub fn restart(&self, alloc: &AllocId, task: Option<&str>, all: bool) -> Result<(), ClientError> {
        self.allocs.get(alloc)?.restart(task, all)
    }
    /// Sends a signal to a task, or to every running task if no name is given. An unknown signal is sent as SIGINT, as
    /// in Nomad.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, the task does not run, or the driver refuses.
    pub async fn signal(&self, alloc: &AllocId, task: Option<&str>, signal: &str) -> Result<(), ClientError> {
        let known = signal.is_empty() || caravan_sys::process::signal_number(signal).is_ok();
        if !known {
            tracing::warn!(%alloc, signal, "unknown signal: sending SIGINT instead");
        }
        self.allocs.get(alloc)?.signal(task, if known { signal } else { "SIGINT" }).await
    }
    /// Returns the counts and durations of hooks, starts and ends of tasks since the agent started.
    pub fn meters(&self) -> caravan_meters::Meters {
        self.meters.clone()
    }
    /// Returns the resource usage of a task.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, the task does not run, or the driver cannot measure it.
    pub async fn stats(&self, alloc: &AllocId, task: &str) -> Result<Usage, ClientError> {
        let (driver, id) = self.allocs.get(alloc)?.running(task)?;
        Ok(driver.usage(&TaskId(id)).await?)
    }
    /// Runs a command next to a task and collects its output.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, the task does not run, or the driver refuses.
    pub async fn exec(
        &self,
        alloc: &AllocId,
        task: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, ClientError> {
        let (driver, id) = self.allocs.get(alloc)?.running(task)?;
        Ok(driver.exec(&TaskId(id), command, timeout).await?)
    }
    /// Calls the CSI controller plugin that runs on this node.
    ///
    /// # Errors
    /// If no such plugin runs here, or the plugin returns an error.
    pub async fn controller_call(&self, call: ControllerCall) -> Result<ControllerAnswer, CsiFault> {
        self.plugins.controller_call(call).await
    }
    /// Unmounts a volume whose claim the servers release. The proof is sent to them as a report.
    ///
    /// # Errors
    /// If an id in the request is invalid, or the ledger cannot be written.
    pub async fn node_detach(&self, request: NodeDetach) -> Result<(), CsiFault> {
        self.volumes.detach(request).await
    }

    /// Expands a volume that is mounted on this node.
    ///
    /// # Errors
    /// If the volume is not mounted here, the plugin cannot expand it, or the plugin returns an error.
    pub async fn node_expand(&self, request: NodeExpand) -> Result<NodeExpanded, CsiFault> {
        self.volumes.expand(request).await
    }

    /// Adds the RPC methods that clients serve for servers: controller calls, expand, detach, host volumes. The agent
    /// serves HTTP.
    #[must_use]
    pub fn routes(&self, router: RouterBuilder) -> RouterBuilder {
        let (calls, detaches, expands) = (self.clone(), self.clone(), self.clone());
        let allocs = self.allocs.clone();
        let volumes = &self.host_volumes;
        let (makes, registers, deletes) = (volumes.clone(), volumes.clone(), volumes.clone());
        router
            .stream::<methods::GiveDisk, _, _, _>(move |_, request| {
                let runner = allocs.get(&request.alloc);
                async move {
                    let runner = runner.map_err(|error| RpcError::new(Code::NotFound, error.to_string()))?;
                    Ok(ReceiverStream::new(runner.give_disk().await?))
                }
            })
            .unary::<methods::HostVolumeCreate, _, _>(move |_, request| {
                let volumes = makes.clone();
                async move { to_the_end(async move { volumes.create(request.volume).await }).await }
            })
            .unary::<methods::HostVolumeRegister, _, _>(move |_, request| {
                let volumes = registers.clone();
                let work = async move { volumes.register(request.volume).await.map(|()| Done::default()) };
                async move { to_the_end(work).await }
            })
            .unary::<methods::HostVolumeDelete, _, _>(move |_, request| {
                let volumes = deletes.clone();
                let work = async move { volumes.delete(request.volume).await.map(|()| Done::default()) };
                async move { to_the_end(work).await }
            })
            .unary::<methods::ControllerCall, _, _>(move |_, call| {
                let handle = calls.clone();
                async move { handle.controller_call(call).await.map_err(|fault| rpc_error(&fault)) }
            })
            .unary::<methods::NodeDetach, _, _>(move |_, request| {
                let handle = detaches.clone();
                async move {
                    handle.node_detach(request).await.map_err(|fault| rpc_error(&fault))?;
                    Ok(Done::default())
                }
            })
            .unary::<methods::NodeExpand, _, _>(move |_, request| {
                let handle = expands.clone();
                async move { handle.node_expand(request).await.map_err(|fault| rpc_error(&fault)) }
            })
    }
}

/// Completes an operation on a host volume even if the servers no longer wait for it. Otherwise its plugin would be
/// killed halfway.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, HostVolumeFault>> + Send + 'static,
) -> Result<T, RpcError> {
    match tokio::spawn(work).await {
        Ok(result) => result.map_err(|fault| RpcError::from(&fault)),
        Err(error) => Err(RpcError::new(Code::Internal, format!("the operation failed: {error}"))),
    }
}

/// Converts a fault to the codes that `ControllerCall` documents.
fn rpc_error(fault: &CsiFault) -> RpcError {
    let code = match fault {
        CsiFault::NoPlugin { .. } | CsiFault::Plugin { source: CsiError::Unreachable { .. } } => {
            Code::Retryable
        }
        CsiFault::Plugin { source: CsiError::Deadline { .. } } => Code::Deadline,
        CsiFault::Plugin { source } if source.outcome_unknown() => Code::Unavailable,
        CsiFault::Plugin { source } => match source.class() {
            Some(Class::NotFound) => Code::NotFound,
            Some(Class::AlreadyExists | Class::FailedPrecondition) => Code::Conflict,
            Some(Class::PermissionDenied | Class::Unauthenticated) => Code::Permission,
            Some(Class::InvalidArgument | Class::OutOfRange | Class::Unimplemented) => Code::Invalid,
            _ => Code::Internal,
        },
        CsiFault::Mode(_)
        | CsiFault::Path(_)
        | CsiFault::Id(_)
        | CsiFault::Owner(_)
        | CsiFault::Unsupported(_) => Code::Invalid,
        CsiFault::Unknown(_) => Code::NotFound,
        CsiFault::GivenUp => Code::Unavailable,
        _ => Code::Internal,
    };
    RpcError::new(code, fault.to_string())
}

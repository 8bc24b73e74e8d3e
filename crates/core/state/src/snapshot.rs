//! Snapshots: encoding and decoding of a root.
//!
//! Eight bytes of magic, format version (u32), CRC-32 of the body (u32) and its length (u64), all little
//! endian, then the body: a sequence of MessagePack values. First the head (index, index of each table),
//! then each table as its name, its number of rows and its rows. Secondary indexes are not written but
//! rebuilt. The job that an allocation runs is written once for all that share it.

use crate::index::Indexes;
use crate::root::{Root, ScalingEvents, Table};
use crate::share::Sharing;
use crate::staged::Staged;
use crate::tenancy::Settings;
use caravan_types::acl::{AuthMethod, BindingRule, OneTimeToken, Policy, Role, Token};
use caravan_types::alloc::Allocation;
use caravan_types::command::JobSource;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::{RootKeyMaterial, RootKeyMeta};
use caravan_types::packed::row::{AllocOfJob, Keyed};
use caravan_types::packed::{Packed, UnpackError};
use caravan_types::{JobKey, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"CRVNSTAT";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 4 + 8;

/// Why bytes are not a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not begin with the magic.
    #[error("the data is not a state snapshot")]
    NotASnapshot,
    /// A later version of the program wrote the snapshot.
    #[error("the snapshot has format version {found}, and this program reads version {VERSION} at most")]
    Version {
        /// Format version of the snapshot.
        found: u32,
    },
    /// The snapshot is truncated.
    #[error("the snapshot should have {expected} bytes but has {found}")]
    Length {
        /// Length by its header, in bytes.
        expected: u64,
        /// Actual length, in bytes.
        found: u64,
    },
    /// The checksum does not match.
    #[error("the snapshot is damaged: its checksum does not match")]
    Checksum,
    /// A row cannot be decoded.
    #[error("table {table} of the snapshot cannot be read")]
    Row {
        /// Name of the table.
        table: &'static str,
        /// Message of the decoder.
        #[source]
        source: UnpackError,
    },
    /// The tables differ from the expected ones.
    #[error("the snapshot has table \"{found}\" where {expected} belongs")]
    Table {
        /// Name of the expected table.
        expected: &'static str,
        /// Name of the table in the snapshot.
        found: String,
    },
    /// An allocation names a job that the snapshot does not contain.
    #[error("allocation {alloc} in the snapshot runs a job that is not in it")]
    MissingJob {
        /// Position of the job in the table of run jobs.
        alloc: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    index: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    ahead: u64,
    tables: BTreeMap<String, u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

caravan_types::packed!(Head, Settings, Staged);

const RUN_JOBS: &str = "run_jobs";
/// The sealed root keys.
const MATERIAL: &str = "root_key_material";
/// The parts of a snapshot that is being restored.
const STAGED: &str = "staged_restore";

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// Number of rows and bytes of each written table.
    sizes: Vec<(&'static str, u64, u64)>,
}

impl Writer {
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        // Writing to memory cannot fail, and every row type has string keys only.
        rmp_serde::encode::write_named(&mut self.bytes, value).expect("rows always encode to memory");
    }
    fn table<T: Serialize>(&mut self, name: &'static str, rows: impl ExactSizeIterator<Item = T>) {
        self.value(name);
        let (count, before) = (rows.len() as u64, self.bytes.len());
        self.value(&count);
        rows.for_each(|row| self.value(&row));
        self.sizes.push((name, count, (self.bytes.len() - before) as u64));
    }
}

/// Returns the number of rows and bytes of each table.
pub(crate) fn sizes(root: &Root) -> Vec<(&'static str, u64, u64)> {
    written(root).sizes
}

/// Returns header and body; the header is still empty.
fn written(root: &Root) -> Writer {
    let mut out = Writer { bytes: vec![0; HEADER], sizes: Vec::new() };
    let tables = Table::ALL.iter().map(|t| (t.as_str().to_owned(), root.table_index[*t as usize]));
    out.value(&Head { index: root.index, ahead: root.ahead, tables: tables.collect() });
    out.table(Table::Nodes.as_str(), root.nodes.values());
    out.table(Table::Jobs.as_str(), root.jobs.values());
    out.table(Table::JobVersions.as_str(), root.versions.iter().map(|(at, row)| keyed(at, row)));
    out.table(Table::Submissions.as_str(), root.submissions.iter().map(|(at, row)| keyed(at, row)));
    out.table(Table::Evals.as_str(), root.evals.values());
    let (jobs, allocs) = pack(root);
    out.table(RUN_JOBS, jobs.iter());
    out.table(Table::Allocs.as_str(), allocs.iter());
    out.table(Table::Deployments.as_str(), root.deployments.values());
    out.table(Table::Volumes.as_str(), root.volumes.values());
    out.table(Table::Claims.as_str(), root.claims.values());
    out.table(Table::Plugins.as_str(), root.plugins.values());
    out.table(Table::HostVolumes.as_str(), root.host_volumes.values());
    out.table(Table::HostClaims.as_str(), root.host_claims.values());
    out.table(Table::Variables.as_str(), root.variables.values());
    out.table(Table::Services.as_str(), root.services.values());
    out.table(
        Table::ScalingEvents.as_str(),
        root.scaling_events.iter().map(|(key, row)| Keyed { key: key.clone(), version: 0, row: &**row }),
    );
    out.table(Table::PeriodicLaunches.as_str(), root.periodic_launches.iter());
    tenancy_out(&mut out, root);
    out
}

/// Encodes a root.
pub fn encode(root: &Root) -> Vec<u8> {
    let mut bytes = written(root).bytes;
    let body = &bytes[HEADER..];
    let (crc, length) = (crc32fast::hash(body), body.len() as u64);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn tenancy_out(out: &mut Writer, root: &Root) {
    let own = &root.tenancy;
    out.table(Table::Namespaces.as_str(), own.namespaces.values());
    out.table(Table::NodePools.as_str(), own.node_pools.values());
    out.table(Table::AclPolicies.as_str(), own.policies.values());
    out.table(Table::AclTokens.as_str(), own.tokens.values());
    out.table(Table::AclRoles.as_str(), own.roles.values());
    out.table(Table::AuthMethods.as_str(), own.auth_methods.values());
    out.table(Table::BindingRules.as_str(), own.binding_rules.values());
    out.table(Table::OneTimeTokens.as_str(), own.one_time.values());
    out.table(Table::RootKeys.as_str(), own.root_keys.values());
    out.table(Table::Settings.as_str(), std::iter::once(&own.settings));
    out.table(MATERIAL, own.root_key_material.values());
    out.table(STAGED, root.staged.iter());
}

/// Built-in rows stay where the snapshot has none.
fn tenancy_in(from: &mut Reader<'_>, root: &mut Root) -> Result<(), SnapshotError> {
    let own = &mut root.tenancy;
    own.namespaces.extend(keyed_by(from.later_table(Table::Namespaces.as_str())?, |row: &NamespaceSpec| {
        row.name.clone()
    }));
    own.node_pools
        .extend(keyed_by(from.later_table(Table::NodePools.as_str())?, |row: &NodePool| row.name.clone()));
    own.policies
        .extend(keyed_by(from.later_table(Table::AclPolicies.as_str())?, |row: &Policy| row.name.clone()));
    own.tokens.extend(keyed_by(from.later_table(Table::AclTokens.as_str())?, |row: &Token| {
        row.accessor_id.clone()
    }));
    own.roles.extend(keyed_by(from.later_table(Table::AclRoles.as_str())?, |row: &Role| row.id.clone()));
    own.auth_methods.extend(keyed_by(from.later_table(Table::AuthMethods.as_str())?, |row: &AuthMethod| {
        row.name.clone()
    }));
    own.binding_rules
        .extend(keyed_by(from.later_table(Table::BindingRules.as_str())?, |row: &BindingRule| {
            row.id.clone()
        }));
    own.one_time.extend(keyed_by(from.later_table(Table::OneTimeTokens.as_str())?, |row: &OneTimeToken| {
        row.one_time_secret_id.clone()
    }));
    own.root_keys.extend(keyed_by(from.later_table(Table::RootKeys.as_str())?, |row: &RootKeyMeta| {
        row.key_id.clone()
    }));
    if let Some(settings) = from.later_table::<Settings>(Table::Settings.as_str())?.pop() {
        own.settings = Arc::new(settings);
    }
    own.root_key_material
        .extend(keyed_by(from.later_table(MATERIAL)?, |row: &RootKeyMaterial| row.key_id.clone()));
    own.index();
    root.staged = from.later_table::<Staged>(STAGED)?.pop().map(Arc::new);
    Ok(())
}

fn keyed_by<K, T>(rows: Vec<T>, key: impl Fn(&T) -> K) -> impl Iterator<Item = (K, Arc<T>)> {
    rows.into_iter().map(move |row| (key(&row), Arc::new(row)))
}

fn keyed<'r, T>((key, version): &(JobKey, u64), row: &'r Arc<T>) -> Keyed<&'r T> {
    Keyed { key: key.clone(), version: *version, row: &**row }
}

/// Returns the distinct jobs that allocations run, in order of first use, and the allocations without them.
fn pack(root: &Root) -> (Vec<Arc<Job>>, Vec<AllocOfJob>) {
    let mut jobs: Vec<Arc<Job>> = Vec::new();
    let mut known: HashMap<(JobKey, u64, u64), Vec<u32>> = HashMap::new();
    let mut place = |job: &Arc<Job>| {
        let alike = known.entry((job.key(), job.version, job.modify_index)).or_default();
        let same = |at: &&u32| {
            let known = &jobs[**at as usize];
            Arc::ptr_eq(known, job) || known == job
        };
        if let Some(at) = alike.iter().find(same) {
            return *at;
        }
        let at = u32::try_from(jobs.len()).expect("fewer jobs than fit into memory");
        jobs.push(job.clone());
        alike.push(at);
        at
    };
    let allocs = root.allocs.values().map(|alloc| AllocOfJob {
        job: alloc.job.as_ref().map(&mut place),
        alloc: Allocation { job: None, ..(**alloc).clone() },
    });
    let allocs = allocs.collect();
    (jobs, allocs)
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn value<T: Packed>(&mut self, table: &'static str) -> Result<T, SnapshotError> {
        T::unpack_first(&mut self.0).map_err(|source| SnapshotError::Row { table, source })
    }
    fn table<T: Packed>(&mut self, table: &'static str) -> Result<Vec<T>, SnapshotError> {
        let found: String = self.value(table)?;
        if found != table {
            return Err(SnapshotError::Table { expected: table, found });
        }
        let rows: u64 = self.value(table)?;
        (0..rows).map(|_| self.value(table)).collect()
    }
    /// Reads a table that the first snapshots did not have: they end before it.
    fn later_table<T: Packed>(&mut self, table: &'static str) -> Result<Vec<T>, SnapshotError> {
        if self.0.is_empty() { Ok(Vec::new()) } else { self.table(table) }
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], SnapshotError> {
    let slice = bytes.get(at..at + N).ok_or(SnapshotError::NotASnapshot)?;
    slice.try_into().map_err(|_| SnapshotError::NotASnapshot)
}

/// Returns the body of a snapshot whose header and checksum are right.
fn body(bytes: &[u8]) -> Result<&[u8], SnapshotError> {
    if word::<8>(bytes, 0)? != *MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = u32::from_le_bytes(word(bytes, 8)?);
    if found != VERSION {
        return Err(SnapshotError::Version { found });
    }
    let crc = u32::from_le_bytes(word(bytes, 12)?);
    let expected = u64::from_le_bytes(word(bytes, 16)?);
    let body = &bytes[HEADER..];
    if body.len() as u64 != expected {
        return Err(SnapshotError::Length { expected, found: body.len() as u64 });
    }
    if crc32fast::hash(body) != crc {
        return Err(SnapshotError::Checksum);
    }
    Ok(body)
}

/// Decodes a root.
pub fn decode(bytes: &[u8]) -> Result<Root, SnapshotError> {
    let mut from = Reader(body(bytes)?);
    let head: Head = from.value("head")?;
    let mut root = Root { index: head.index, ahead: head.ahead, ..Root::default() };
    for table in Table::ALL {
        root.table_index[table as usize] = head.tables.get(table.as_str()).copied().unwrap_or(0);
    }
    let rows: Vec<caravan_types::node::Node> = from.table(Table::Nodes.as_str())?;
    root.nodes = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<Job> = from.table(Table::Jobs.as_str())?;
    root.jobs = rows.into_iter().map(|row| (row.key(), Arc::new(row))).collect();
    let rows: Vec<Keyed<Job>> = from.table(Table::JobVersions.as_str())?;
    for Keyed { key, version, row } in rows {
        // The newest version is the job's own row: share it again.
        let newest = root.jobs.get(&key).filter(|job| ***job == row).cloned();
        root.versions.insert((key, version), newest.unwrap_or_else(|| Arc::new(row)));
    }
    let rows: Vec<Keyed<JobSource>> = from.table(Table::Submissions.as_str())?;
    root.submissions = rows.into_iter().map(|k| ((k.key, k.version), Arc::new(k.row))).collect();
    let rows: Vec<caravan_types::eval::Evaluation> = from.table(Table::Evals.as_str())?;
    root.evals = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let jobs: Vec<Arc<Job>> = from.table::<Job>(RUN_JOBS)?.into_iter().map(Arc::new).collect();
    let rows: Vec<AllocOfJob> = from.table(Table::Allocs.as_str())?;
    let mut sharing = Sharing::default();
    for AllocOfJob { mut alloc, job } in rows {
        if let Some(at) = job {
            let found = jobs.get(at as usize).cloned();
            let missing = || SnapshotError::MissingJob { alloc: alloc.id.to_string() };
            alloc.job = Some(found.ok_or_else(missing)?);
        }
        sharing.share(&root, &mut alloc, None);
        root.allocs.insert(alloc.id.clone(), Arc::new(alloc));
    }
    let rows: Vec<caravan_types::deployment::Deployment> = from.table(Table::Deployments.as_str())?;
    root.deployments = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<caravan_types::volume::Volume> = from.table(Table::Volumes.as_str())?;
    root.volumes = rows.into_iter().map(|row| (row.key(), Arc::new(row))).collect();
    let rows: Vec<caravan_types::volume::Claim> = from.table(Table::Claims.as_str())?;
    root.claims = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<caravan_types::plugin::Plugin> = from.table(Table::Plugins.as_str())?;
    root.plugins = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<HostVolume> = from.later_table(Table::HostVolumes.as_str())?;
    root.host_volumes = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<HostVolumeClaim> = from.later_table(Table::HostClaims.as_str())?;
    root.host_claims = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<caravan_types::variable::Variable> = from.later_table(Table::Variables.as_str())?;
    root.variables = rows.into_iter().map(|row| (row.key.clone(), Arc::new(row))).collect();
    let rows: Vec<caravan_types::service::ServiceRegistration> =
        from.later_table(Table::Services.as_str())?;
    root.services = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let rows: Vec<Keyed<ScalingEvents>> = from.later_table(Table::ScalingEvents.as_str())?;
    root.scaling_events = rows.into_iter().map(|k| (k.key, Arc::new(k.row))).collect();
    let rows: Vec<(JobKey, UnixNanos)> = from.later_table(Table::PeriodicLaunches.as_str())?;
    root.periodic_launches = rows.into_iter().collect();
    tenancy_in(&mut from, &mut root)?;
    root.secondary = Indexes::rebuilt(&root);
    Ok(root)
}

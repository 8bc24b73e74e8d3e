//! Snapshots of the state: encoding and decoding of a root.
//!
//! The header has eight bytes of magic, the format version (u32), the CRC-32 of the body (u32) and its length (u64),
//! all little endian. The body is a sequence of MessagePack values. The head comes first (index, index of each
//! table), then each table as its name, its number of rows and its rows. Secondary indexes are not written but
//! rebuilt. The job of an allocation is written once for all allocations that share it.

mod jobless;

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
use jobless::AllocRow;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"CRVNSTAT";
const VERSION: u32 = 1;
/// The length of the header, in bytes.
pub const HEADER: usize = 8 + 4 + 4 + 8;

/// The reason that bytes are not a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes do not begin with the magic.
    #[error("the data is not a state snapshot")]
    NotASnapshot,
    /// A later version of the program wrote the snapshot.
    #[error("the snapshot has format version {found}, and this program reads version {VERSION} at most")]
    Version {
        /// The format version of the snapshot.
        found: u32,
    },
    /// The snapshot is truncated.
    #[error("the snapshot should have {expected} bytes but has {found}")]
    Length {
        /// The length in the header, in bytes.
        expected: u64,
        /// The actual length, in bytes.
        found: u64,
    },
    /// The checksum does not match.
    #[error("the snapshot is damaged: its checksum does not match")]
    Checksum,
    /// A row cannot be decoded.
    #[error("table {table} of the snapshot cannot be read")]
    Row {
        /// The name of the table.
        table: &'static str,
        /// The decoder's error.
        #[source]
        source: UnpackError,
    },
    /// The tables differ from the expected ones.
    #[error("the snapshot has table \"{found}\" where {expected} belongs")]
    Table {
        /// The name of the expected table.
        expected: &'static str,
        /// The name of the table in the snapshot.
        found: String,
    },
    /// An allocation names a job that the snapshot does not contain.
    #[error("allocation {alloc} in the snapshot runs a job that is not in it")]
    MissingJob {
        /// The id of the allocation.
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
/// The name of the table of sealed root keys.
const MATERIAL: &str = "root_key_material";
/// The name of the table with the parts of a snapshot that is being restored.
const STAGED: &str = "staged_restore";

/// The number of bytes after which the writer writes them to its output.
const PIECE: usize = 256 * 1024;

/// A writer of the body of a snapshot in pieces, so that no state is in memory twice.
struct Writer<'w> {
    out: &'w mut dyn Write,
    /// The encoded bytes that are not written yet.
    piece: Vec<u8>,
    crc: crc32fast::Hasher,
    /// The number of written bytes.
    length: u64,
    /// The number of rows and bytes of each written table.
    sizes: Vec<(&'static str, u64, u64)>,
}

impl<'w> Writer<'w> {
    fn new(out: &'w mut dyn Write) -> Self {
        Self { out, piece: Vec::new(), crc: crc32fast::Hasher::new(), length: 0, sizes: Vec::new() }
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> io::Result<()> {
        // Writing to memory cannot fail, and every row type has string keys only.
        rmp_serde::encode::write_named(&mut self.piece, value).expect("rows always encode to memory");
        if self.piece.len() >= PIECE { self.pass() } else { Ok(()) }
    }

    fn table<T: Serialize>(
        &mut self,
        name: &'static str,
        rows: impl ExactSizeIterator<Item = T>,
    ) -> io::Result<()> {
        self.value(name)?;
        let (count, before) = (rows.len() as u64, self.written());
        self.value(&count)?;
        for row in rows {
            self.value(&row)?;
        }
        self.sizes.push((name, count, self.written() - before));
        Ok(())
    }

    fn written(&self) -> u64 {
        self.length + self.piece.len() as u64
    }

    /// Writes the encoded bytes to the output.
    fn pass(&mut self) -> io::Result<()> {
        self.crc.update(&self.piece);
        self.length += self.piece.len() as u64;
        self.out.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

/// Returns the number of rows and bytes of each table.
pub(crate) fn sizes(root: &Root) -> Vec<(&'static str, u64, u64)> {
    let mut nowhere = io::sink();
    let mut out = Writer::new(&mut nowhere);
    match body_out(&mut out, root) {
        Ok(()) => out.sizes,
        Err(_) => unreachable!("a sink accepts all bytes"),
    }
}

fn body_out(out: &mut Writer<'_>, root: &Root) -> io::Result<()> {
    let tables = Table::ALL.iter().map(|t| (t.as_str().to_owned(), root.table_index[*t as usize]));
    out.value(&Head { index: root.index, ahead: root.ahead, tables: tables.collect() })?;
    out.table(Table::Nodes.as_str(), root.nodes.values())?;
    out.table(Table::Jobs.as_str(), root.jobs.values())?;
    out.table(Table::JobVersions.as_str(), root.versions.iter().map(|(at, row)| keyed(at, row)))?;
    out.table(Table::Submissions.as_str(), root.submissions.iter().map(|(at, row)| keyed(at, row)))?;
    out.table(Table::Evals.as_str(), root.evals.values())?;
    let jobs = RunJobs::collect(root);
    out.table(RUN_JOBS, jobs.jobs.iter())?;
    out.table(Table::Allocs.as_str(), root.allocs.values().map(|alloc| jobs.row(alloc)))?;
    out.table(Table::Deployments.as_str(), root.deployments.values())?;
    out.table(Table::Volumes.as_str(), root.volumes.values())?;
    out.table(Table::Claims.as_str(), root.claims.values())?;
    out.table(Table::Plugins.as_str(), root.plugins.values())?;
    out.table(Table::HostVolumes.as_str(), root.host_volumes.values())?;
    out.table(Table::HostClaims.as_str(), root.host_claims.values())?;
    out.table(Table::Variables.as_str(), root.variables.values())?;
    out.table(Table::Services.as_str(), root.services.values())?;
    out.table(
        Table::ScalingEvents.as_str(),
        root.scaling_events.iter().map(|(key, row)| Keyed { key: key.clone(), version: 0, row: &**row }),
    )?;
    out.table(Table::PeriodicLaunches.as_str(), root.periodic_launches.iter())?;
    tenancy_out(out, root)?;
    out.pass()
}

/// Encodes a root in pieces. Writes everything except the header, which has the length and the checksum, and returns
/// the header.
///
/// # Errors
/// Returns the errors of `out`.
pub fn encode_to(root: &Root, out: &mut dyn Write) -> io::Result<[u8; HEADER]> {
    let mut out = Writer::new(out);
    body_out(&mut out, root)?;
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&out.crc.finalize().to_le_bytes());
    header[16..24].copy_from_slice(&out.length.to_le_bytes());
    Ok(header)
}

/// Encodes a root.
pub fn encode(root: &Root) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    let Ok(header) = encode_to(root, &mut bytes) else { unreachable!("memory accepts all bytes") };
    bytes[..HEADER].copy_from_slice(&header);
    bytes
}

fn tenancy_out(out: &mut Writer<'_>, root: &Root) -> io::Result<()> {
    let own = &root.tenancy;
    out.table(Table::Namespaces.as_str(), own.namespaces.values())?;
    out.table(Table::NodePools.as_str(), own.node_pools.values())?;
    out.table(Table::AclPolicies.as_str(), own.policies.values())?;
    out.table(Table::AclTokens.as_str(), own.tokens.values())?;
    out.table(Table::AclRoles.as_str(), own.roles.values())?;
    out.table(Table::AuthMethods.as_str(), own.auth_methods.values())?;
    out.table(Table::BindingRules.as_str(), own.binding_rules.values())?;
    out.table(Table::OneTimeTokens.as_str(), own.one_time.values())?;
    out.table(Table::RootKeys.as_str(), own.root_keys.values())?;
    out.table(Table::Settings.as_str(), std::iter::once(&own.settings))?;
    out.table(MATERIAL, own.root_key_material.values())?;
    out.table(STAGED, root.staged.iter())
}

/// Reads the tables of operators' rows. Built-in rows are kept where the snapshot has none.
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

/// The distinct jobs that allocations run, in order of first use.
#[derive(Default)]
struct RunJobs {
    jobs: Vec<Arc<Job>>,
    /// The position of each job by its address. Equal jobs at several addresses have one position.
    places: foldhash::HashMap<*const Job, u32>,
}

impl RunJobs {
    fn collect(root: &Root) -> Self {
        let mut out = Self::default();
        let mut known: HashMap<(JobKey, u64, u64), Vec<u32>> = HashMap::new();
        for job in root.allocs.values().filter_map(|alloc| alloc.job.as_ref()) {
            if out.places.contains_key(&Arc::as_ptr(job)) {
                continue;
            }
            let alike = known.entry((job.key(), job.version, job.modify_index)).or_default();
            let at = match alike.iter().find(|at| out.jobs[**at as usize] == *job) {
                Some(at) => *at,
                None => {
                    let at = u32::try_from(out.jobs.len()).expect("fewer jobs than fit into memory");
                    out.jobs.push(job.clone());
                    alike.push(at);
                    at
                }
            };
            out.places.insert(Arc::as_ptr(job), at);
        }
        out
    }

    /// Returns the row of an allocation of the same root.
    fn row<'a>(&self, alloc: &'a Allocation) -> AllocRow<'a> {
        AllocRow::new(alloc, alloc.job.as_ref().map(|job| self.places[&Arc::as_ptr(job)]))
    }
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn value<T: Packed>(&mut self, table: &'static str) -> Result<T, SnapshotError> {
        T::unpack_first(&mut self.0).map_err(|source| SnapshotError::Row { table, source })
    }
    fn table<T: Packed>(&mut self, table: &'static str) -> Result<Vec<T>, SnapshotError> {
        let mut rows = Vec::new();
        self.each(table, |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }
    /// Reads the rows of a table one by one. All allocations at once would need as much memory as the state.
    fn each<T: Packed>(
        &mut self,
        table: &'static str,
        mut each: impl FnMut(T) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let found: String = self.value(table)?;
        if found != table {
            return Err(SnapshotError::Table { expected: table, found });
        }
        let rows: u64 = self.value(table)?;
        (0..rows).try_for_each(|_| each(self.value(table)?))
    }
    /// Reads a table that the first snapshots lack: these snapshots end before it.
    fn later_table<T: Packed>(&mut self, table: &'static str) -> Result<Vec<T>, SnapshotError> {
        if self.0.is_empty() { Ok(Vec::new()) } else { self.table(table) }
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], SnapshotError> {
    let slice = bytes.get(at..at + N).ok_or(SnapshotError::NotASnapshot)?;
    slice.try_into().map_err(|_| SnapshotError::NotASnapshot)
}

/// Returns the body of a snapshot with a valid header and checksum.
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
        // The newest version is the job's own row, so both share it again.
        let newest = root.jobs.get(&key).filter(|job| ***job == row).cloned();
        root.versions.insert((key, version), newest.unwrap_or_else(|| Arc::new(row)));
    }
    let rows: Vec<Keyed<JobSource>> = from.table(Table::Submissions.as_str())?;
    root.submissions = rows.into_iter().map(|k| ((k.key, k.version), Arc::new(k.row))).collect();
    let rows: Vec<caravan_types::eval::Evaluation> = from.table(Table::Evals.as_str())?;
    root.evals = rows.into_iter().map(|row| (row.id.clone(), Arc::new(row))).collect();
    let jobs: Vec<Arc<Job>> = from.table::<Job>(RUN_JOBS)?.into_iter().map(Arc::new).collect();
    let mut sharing = Sharing::default();
    from.each(Table::Allocs.as_str(), |AllocOfJob { mut alloc, job }| {
        if let Some(at) = job {
            let found = jobs.get(at as usize).cloned();
            let missing = || SnapshotError::MissingJob { alloc: alloc.id.to_string() };
            alloc.job = Some(found.ok_or_else(missing)?);
        }
        sharing.share(&root, &mut alloc, None);
        root.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        Ok(())
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_many_pieces_is_the_same_state() {
        let mut root = Root::default();
        for at in 0..20_000 {
            let key = JobKey { namespace: "default".into(), id: format!("job-{at}").as_str().into() };
            root.periodic_launches.insert(key, UnixNanos(at));
        }
        struct Pieces(Vec<Vec<u8>>);
        impl Write for Pieces {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut pieces = Pieces(Vec::new());
        let header = encode_to(&root, &mut pieces).unwrap();
        assert!(pieces.0.len() > 2 && pieces.0.iter().all(|piece| piece.len() < 2 * PIECE));
        let whole = [&header[..], &pieces.0.concat()].concat();
        assert_eq!(whole, encode(&root));
        let back = decode(&whole).unwrap();
        assert_eq!(back.periodic_launches, root.periodic_launches);
        let launches = sizes(&root).into_iter().find(|(name, ..)| *name == Table::PeriodicLaunches.as_str());
        assert!(launches.is_some_and(|(_, rows, bytes)| rows == 20_000 && bytes > 300_000), "{launches:?}");
        let full = encode_to(&root, &mut &mut [0_u8; 1000][..]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WriteZero);
    }
}

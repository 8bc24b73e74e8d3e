//! The resolution of the caller of a request: the token or the identity that the request carries, and its rights.

use super::{Acl, Level, NsCap, VarCap, parse};
use crate::keyring::{Keyring, Signer};
use caravan_state::Root;
use caravan_types::acl::{ANONYMOUS, Policy, Rules, Secret, Token, TokenType};
use caravan_types::alloc::Allocation;
use caravan_types::identity::{Claims, DEFAULT_AUDIENCE};
use caravan_types::{JobId, UnixNanos};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The maximum number of cached sets of compiled policies.
const KEPT: usize = 512;

/// The reason that a caller is refused, with texts that clients recognize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The caller lacks the right, or its secret is unknown.
    #[error("Permission denied")]
    Permission,
    /// The token or identity has expired.
    #[error("ACL token expired")]
    Expired,
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The rights of the caller.
    pub acl: Arc<Acl>,
    /// The caller's token; `None` while access control is off, and for workloads.
    pub token: Option<Arc<Token>>,
    /// The caller's task, for workload identities.
    pub claims: Option<Arc<Workload>>,
}

/// A task that authenticates by its workload identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The verified claims of the identity.
    pub claims: Claims,
    /// The group of the task.
    pub group: String,
    /// The policies of the task.
    pub policies: Vec<String>,
}

impl Caller {
    /// Returns a caller with all rights, for servers whose access control is off.
    pub fn unrestricted() -> Self {
        Self { acl: Arc::new(Acl::management()), token: None, claims: None }
    }

    /// Returns a caller without rights.
    pub fn nobody() -> Self {
        Self { acl: Arc::default(), token: None, claims: None }
    }

    /// Returns the caller as clients see it in a node's last drain: `token:` with an accessor, or `alloc:` with an id. The
    /// token of all callers without access control has the accessor `acls-disabled`.
    pub fn identity(&self) -> String {
        match (&self.token, &self.claims) {
            (Some(token), _) => format!("token:{}", token.accessor_id),
            (None, Some(workload)) => format!("alloc:{}", workload.claims.allocation_id),
            (None, None) => "token:acls-disabled".to_owned(),
        }
    }

    /// Returns whether the caller has a capability in a namespace.
    pub fn may(&self, namespace: &str, cap: NsCap) -> bool {
        self.acl.namespace(namespace, cap)
    }

    /// Returns whether the caller has a capability on a variable. Workloads may read their own variables
    /// (docs/reference/http-api.md, section 5.9).
    pub fn variable(&self, namespace: &str, path: &str, cap: VarCap) -> bool {
        let own = || {
            self.claims.as_ref().is_some_and(|workload| {
                matches!(cap, VarCap::Read | VarCap::List)
                    && workload.claims.namespace == namespace
                    && belongs(workload, path)
            })
        };
        self.acl.variable(namespace, path, cap) || own()
    }

    /// Whether the caller is a task that authenticates by its workload identity.
    pub fn is_workload(&self) -> bool {
        self.claims.is_some()
    }

    /// Returns the names of the caller's policies, including the policies of its roles.
    pub fn policies(&self, root: &Root) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        if let Some(token) = &self.token {
            names.extend(policies_of(root, token));
        }
        if let Some(workload) = &self.claims {
            names.extend(workload.policies.iter().cloned());
        }
        names
    }

    /// Returns the expiry of the caller's token or identity, or `None` if it does not expire.
    pub fn ends(&self) -> Option<UnixNanos> {
        let token = self.token.as_ref().and_then(|token| token.ends());
        token.or_else(|| self.claims.as_ref().and_then(|workload| workload.claims.ends()))
    }

    /// Whether the caller has management rights.
    pub fn is_management(&self) -> bool {
        self.acl.is_management()
    }

    /// Returns whether the caller has a level of rights on nodes.
    pub fn node(&self, level: Level) -> bool {
        self.acl.node(level)
    }
}

/// Returns whether a workload may read a path without a policy.
fn belongs(workload: &Workload, path: &str) -> bool {
    let Some(rest) = path.strip_prefix("nomad/jobs") else { return false };
    let claims = &workload.claims;
    let own = [
        String::new(),
        format!("/{}", claims.job_id),
        format!("/{}/{}", claims.job_id, workload.group),
        format!("/{}/{}/{}", claims.job_id, workload.group, claims.task),
    ];
    own.iter().any(|own| own == rest)
}

/// Returns the job that a task's identity names: a child job acts for its parent job.
pub(crate) fn claimed_job(alloc: &Allocation) -> &JobId {
    let parent = alloc.job.as_ref().map(|job| &job.parent_id).filter(|parent| !parent.is_empty());
    parent.unwrap_or(&alloc.job_id)
}

/// Returns a task with its policies.
fn speaker(root: &Root, claims: Claims, group: String) -> Arc<Workload> {
    let covered = |policy: &&Arc<Policy>| {
        policy
            .job_acl
            .as_ref()
            .is_some_and(|acl| acl.covers(&claims.namespace, &claims.job_id, &group, &claims.task))
    };
    let policies = root.acl_policies().filter(covered).map(|policy| policy.name.clone()).collect();
    Arc::new(Workload { claims, group, policies })
}

fn policies_of(root: &Root, token: &Token) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = token.policy_names().iter().cloned().collect();
    for role in token.role_links().iter().filter_map(|link| root.acl_role(&link.id)) {
        names.extend(role.policies.iter().map(|policy| policy.name.clone()));
    }
    names
}

/// The name and index of each policy. A changed policy therefore never finds an outdated compilation.
type Compiled = HashMap<Vec<(String, u64)>, Arc<Acl>>;

/// The resolver of the callers of requests; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    enabled: bool,
    keyring: Keyring,
    compiled: Arc<Mutex<Compiled>>,
}

impl Resolver {
    pub(crate) fn new(enabled: bool, keyring: Keyring) -> Self {
        Self { enabled, keyring, compiled: Arc::default() }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the caller that a secret identifies; an empty secret is the anonymous caller.
    pub(crate) fn resolve(&self, root: &Root, secret: &str, now: UnixNanos) -> Result<Caller, Denied> {
        if !self.enabled {
            return Ok(Caller { claims: self.workload(root, secret, now).ok(), ..Caller::unrestricted() });
        }
        if secret.is_empty() {
            let acl = self.compile(root, &BTreeSet::from([ANONYMOUS.to_owned()]));
            return Ok(Caller { acl, token: Some(Arc::new(Token::anonymous())), claims: None });
        }
        if secret.contains('.') {
            let workload = self.workload(root, secret, now)?;
            let names = workload.policies.iter().cloned().collect();
            return Ok(Caller { acl: self.compile(root, &names), token: None, claims: Some(workload) });
        }
        let token = root.acl_token_by_secret(&Secret::new(secret)).ok_or(Denied::Permission)?;
        if token.expired(now) {
            return Err(Denied::Expired);
        }
        let acl = match token.kind {
            TokenType::Management => Arc::new(Acl::management()),
            _ => self.compile(root, &policies_of(root, token)),
        };
        Ok(Caller { acl, token: Some(token.clone()), claims: None })
    }

    /// Returns the task of an identity, while its allocation has not ended. An identity for another audience is
    /// refused: a party that received it from a task could act as the task.
    fn workload(&self, root: &Root, token: &str, now: UnixNanos) -> Result<Arc<Workload>, Denied> {
        let signer = Signer::key_of(token).and_then(|key| self.keyring.known_signer(&key));
        let claims = signer.and_then(|signer| signer.open(token).ok()).ok_or(Denied::Permission)?;
        if !claims.is_for(DEFAULT_AUDIENCE) || claims.is_early(now.as_secs()) {
            return Err(Denied::Permission);
        }
        if claims.expired(now.as_secs()) {
            return Err(Denied::Expired);
        }
        let alloc = root.alloc(&claims.allocation_id.as_str().into()).ok_or(Denied::Permission)?;
        if alloc.client_terminal() {
            return Err(Denied::Permission);
        }
        Ok(speaker(root, claims, alloc.task_group.to_string()))
    }

    /// Returns the caller for a task of an allocation, on whose behalf its node sends a request.
    pub(crate) fn task(&self, root: &Root, alloc: &Allocation, task: &str) -> Caller {
        let claims = Claims {
            namespace: alloc.namespace.to_string(),
            job_id: claimed_job(alloc).to_string(),
            allocation_id: alloc.id.to_string(),
            task: task.to_owned(),
            ..Claims::default()
        };
        let workload = speaker(root, claims, alloc.task_group.to_string());
        if !self.enabled {
            return Caller { claims: Some(workload), ..Caller::unrestricted() };
        }
        let names = workload.policies.iter().cloned().collect();
        Caller { acl: self.compile(root, &names), token: None, claims: Some(workload) }
    }

    fn compile(&self, root: &Root, names: &BTreeSet<String>) -> Arc<Acl> {
        let found: BTreeMap<&str, &Arc<Policy>> =
            names.iter().filter_map(|name| Some((name.as_str(), root.acl_policy(name)?))).collect();
        let key: Vec<(String, u64)> =
            found.iter().map(|(name, policy)| ((*name).to_owned(), policy.modify_index)).collect();
        // A panic leaves only complete entries.
        let mut compiled = self.compiled.lock();
        if let Some(acl) = compiled.get(&key) {
            return acl.clone();
        }
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        // Rules that cannot be parsed grant nothing; the endpoint refuses to store such rules.
        let rules: Vec<Rules> =
            found.values().map(|policy| parse(&policy.rules).unwrap_or_default()).collect();
        let acl = Arc::new(Acl::compile(&rules));
        compiled.insert(key, acl.clone());
        acl
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_state::Root;
    use caravan_types::Time;
    use caravan_types::acl::RoleLink;
    use caravan_types::acl::{PolicyLink, Role};
    use caravan_types::admin::AdminChange;
    use caravan_types::command::{Change, Command};

    fn with(root: Root, change: AdminChange) -> Root {
        let command = Command { now: UnixNanos(1), change: Change::Admin(change) };
        let (next, outcome, _) = root.apply(root.index() + 1, &command);
        assert_eq!(outcome.refused, None);
        next
    }

    fn policy(name: &str, rules: &str) -> AdminChange {
        AdminChange::PolicyWrite(Box::new(Policy {
            name: name.into(),
            rules: rules.into(),
            ..Policy::default()
        }))
    }

    fn token(secret: &str, edit: impl FnOnce(&mut Token)) -> AdminChange {
        let mut token =
            Token { accessor_id: format!("of-{secret}"), secret_id: Secret::new(secret), ..Token::default() };
        edit(&mut token);
        AdminChange::TokenWrite(Box::new(token))
    }

    fn resolver(enabled: bool) -> Resolver {
        Resolver::new(enabled, Keyring::memory().unwrap())
    }

    #[test]
    fn a_token_may_what_its_policies_and_roles_say() {
        let root = with(Root::default(), policy("readers", "namespace \"default\" { policy = \"read\" }"));
        let root = with(root, policy("nodes", "node { policy = \"write\" }"));
        let role = Role {
            id: "r1".into(),
            name: "ops".into(),
            policies: vec![PolicyLink { name: "nodes".into() }],
            ..Role::default()
        };
        let root = with(root, AdminChange::RoleWrite(Box::new(role)));
        let root = with(
            root,
            token("s1", |t| {
                t.policies = Some(vec!["readers".into(), "ghost".into()]);
                t.roles = Some(vec![RoleLink { id: "r1".into(), name: "ops".into() }]);
            }),
        );
        let resolver = resolver(true);
        let caller = resolver.resolve(&root, "s1", UnixNanos(2)).unwrap();
        assert!(caller.may("default", NsCap::ReadJob) && caller.node(Level::Write));
        assert!(!caller.may("default", NsCap::SubmitJob) && !caller.is_management());
        // A policy that is written again takes effect immediately.
        let root = with(root, policy("readers", "namespace \"default\" { policy = \"write\" }"));
        assert!(resolver.resolve(&root, "s1", UnixNanos(2)).unwrap().may("default", NsCap::SubmitJob));
    }

    #[test]
    fn the_unknown_and_the_expired_may_nothing() {
        let root = with(
            Root::default(),
            token("s1", |t| {
                t.kind = TokenType::Management;
                t.expiration_time = Time(100);
            }),
        );
        let resolver = resolver(true);
        assert!(resolver.resolve(&root, "s1", UnixNanos(99)).unwrap().is_management());
        assert_eq!(resolver.resolve(&root, "s1", UnixNanos(100)).unwrap_err(), Denied::Expired);
        assert_eq!(resolver.resolve(&root, "s2", UnixNanos(1)).unwrap_err(), Denied::Permission);
        assert_eq!(resolver.resolve(&root, "a.b.c", UnixNanos(1)).unwrap_err(), Denied::Permission);
        assert_eq!(resolver.resolve(&root, "s1", UnixNanos(99)).unwrap().identity(), "token:of-s1");
        let nobody = resolver.resolve(&root, "", UnixNanos(1)).unwrap();
        assert!(!nobody.may("default", NsCap::ListJobs));
        let root = with(root, policy(ANONYMOUS, "namespace \"default\" { capabilities = [\"list-jobs\"] }"));
        assert!(resolver.resolve(&root, "", UnixNanos(1)).unwrap().may("default", NsCap::ListJobs));
    }

    #[test]
    fn while_it_is_off_everybody_may_everything() {
        let caller = resolver(false).resolve(&Root::default(), "whatever", UnixNanos(1)).unwrap();
        assert!(caller.is_management() && caller.token.is_none());
    }

    #[test]
    fn a_workload_reads_the_variables_that_belong_to_it() {
        let claims = Claims {
            namespace: "default".into(),
            job_id: "web".into(),
            task: "server".into(),
            ..Claims::default()
        };
        let workload = Workload { claims, group: "g".into(), policies: Vec::new() };
        let caller = Caller { acl: Arc::default(), token: None, claims: Some(Arc::new(workload)) };
        for (path, may) in [
            ("nomad/jobs", true),
            ("nomad/jobs/web", true),
            ("nomad/jobs/web/g", true),
            ("nomad/jobs/web/g/server", true),
            ("nomad/jobs/web/g/other", false),
            ("nomad/jobs/db", false),
            ("nomad/jobsx", false),
            ("app", false),
        ] {
            assert_eq!(caller.variable("default", path, VarCap::Read), may, "{path}");
        }
        assert!(!caller.variable("team", "nomad/jobs", VarCap::Read));
        assert!(!caller.variable("default", "nomad/jobs", VarCap::Write));
    }
}

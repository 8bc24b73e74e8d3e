//! The proofs of nodes: the secret of a node's first registration, and signed identities, which the servers renew
//! with heartbeats (docs/reference/cluster.md, section 14.2).
//!
//! An identity expires, and each server verifies it with the public keys of the root keys. The secret does not
//! expire. A node needs it to register, to get its first identity, and after its identity has expired.

use crate::core::Core;
use crate::endpoint::NodeFault;
use crate::keyring::Signer;
use caravan_types::UnixNanos;
use caravan_types::identity::{Claims, DEFAULT_AUDIENCE};
use caravan_types::node::{Node, NodeSecret};

/// Returns an error unless a text proves that its sender is the node.
pub(crate) fn check(core: &Core, region: &str, node: &Node, proof: &NodeSecret) -> Result<(), NodeFault> {
    if node.secret_id == *proof {
        return Ok(());
    }
    if !is_identity(proof) {
        return Err(NodeFault::WrongSecret(node.id.clone()));
    }
    let refused = |reason| NodeFault::Identity { node: node.id.clone(), reason };
    let claims = open(core, proof).map_err(refused)?;
    verdict(&claims, region, node, core.now()).map_err(refused)
}

/// Returns whether a proof has the form of an identity: a secret is a UUID, and an identity has three parts with
/// dots.
fn is_identity(proof: &NodeSecret) -> bool {
    proof.expose().contains('.')
}

/// Returns the claims of an identity that a root key of this cluster signed.
fn open(core: &Core, proof: &NodeSecret) -> Result<Claims, &'static str> {
    let signer = Signer::key_of(proof.expose()).and_then(|key| core.keyring.known_signer(&key));
    let signer = signer.ok_or("its key is no root key of this region")?;
    signer.open(proof.expose()).map_err(|error| error.0)
}

/// Returns an error unless verified claims identify the node.
fn verdict(claims: &Claims, region: &str, node: &Node, now: UnixNanos) -> Result<(), &'static str> {
    let now = now.as_secs();
    if claims.node_id != node.id.as_str() {
        return Err("it belongs to another node");
    }
    if !claims.sub.starts_with(&format!("node:{region}:")) {
        return Err("it belongs to another region");
    }
    if !claims.is_for(DEFAULT_AUDIENCE) {
        return Err("it is for another audience");
    }
    // The beginning of the validity is not checked: the clock of this server may be behind that of the signer.
    if claims.expired(now) {
        return Err("it has expired");
    }
    Ok(())
}

/// Returns whether a node gets a new identity with its heartbeat. That is the case if it has none and requests one,
/// after two thirds of the lifetime, or if another root key signs. `proof` was checked before.
pub(crate) fn is_due(core: &Core, proof: &NodeSecret, asks: bool) -> bool {
    if !is_identity(proof) {
        return asks;
    }
    let signs = core.snapshot().active_root_key().map(|key| key.key_id.clone());
    if Signer::key_of(proof.expose()) != signs {
        return true;
    }
    open(core, proof).map_or(true, |claims| is_old(&claims, core.now()))
}

fn is_old(claims: &Claims, now: UnixNanos) -> bool {
    let Some(end) = claims.exp else { return false };
    let (life, age) = (end - claims.iat, now.as_secs() - claims.iat);
    age.saturating_mul(3) >= life.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::AclConfig;
    use crate::admin::Admin;
    use crate::core::Moment;
    use caravan_types::BootInstant;
    use caravan_types::command::Change;
    use caravan_types::identity::Audience;

    const HOUR: i64 = 3600;

    fn claims(edit: impl FnOnce(&mut Claims)) -> Claims {
        let mut claims = Claims {
            node_id: "n1".into(),
            sub: "node:global:default:n1:default".into(),
            aud: Audience(vec![DEFAULT_AUDIENCE.into()]),
            iat: 1000,
            nbf: 1000,
            exp: Some(1000 + HOUR),
            ..Claims::default()
        };
        edit(&mut claims);
        claims
    }

    fn at(secs: i64) -> UnixNanos {
        UnixNanos(secs * 1_000_000_000)
    }

    #[test]
    fn an_identity_is_for_one_node_of_one_region_for_a_time() {
        let node = Node { id: "n1".into(), ..Node::default() };
        let judge = |claims: Claims, now| verdict(&claims, "global", &node, at(now));
        assert_eq!(judge(claims(|_| ()), 1000), Ok(()));
        assert_eq!(judge(claims(|_| ()), 1000 + HOUR + 1), Err("it has expired"));
        assert_eq!(judge(claims(|_| ()), 1), Ok(()), "the clock of the signer was ahead");
        assert_eq!(judge(claims(|c| c.node_id = "n2".into()), 1000), Err("it belongs to another node"));
        let other = claims(|c| c.sub = "node:mars:default:n1:default".into());
        assert_eq!(judge(other, 1000), Err("it belongs to another region"));
        // The identity of a task names its allocation, and the claims of its subject begin with the region.
        let task = claims(|c| c.sub = "global:default:job:group:task:default".into());
        assert_eq!(judge(task, 1000), Err("it belongs to another region"));
        let introduction = claims(|c| c.sub = "node-introduction:global:default:n1:default".into());
        assert_eq!(judge(introduction, 1000), Err("it belongs to another region"));
        assert_eq!(judge(claims(|c| c.aud = Audience::default()), 1000), Err("it is for another audience"));
    }

    #[test]
    fn an_identity_is_renewed_after_two_thirds_of_its_life() {
        let claims = claims(|_| ());
        assert!(!is_old(&claims, at(1000)) && !is_old(&claims, at(1000 + 2399)));
        assert!(is_old(&claims, at(1000 + 2400)) && is_old(&claims, at(1000 + 2 * HOUR)));
        assert!(!is_old(&Claims { exp: None, ..claims }, at(1_000_000)));
    }

    #[tokio::test]
    async fn a_node_proves_itself_by_its_secret_or_by_its_identity() {
        let start = Moment { wall: at(1000), boot: BootInstant::from_nanos(1) };
        let (core, clock) = Core::with_clock(start).await;
        let admin = Admin::new(core.clone(), "global".into(), AclConfig::default(), None);
        core.keyring.make_cluster_key().unwrap();
        admin.settle_keys().await.unwrap();
        let node = Node {
            id: "n1".into(),
            secret_id: NodeSecret::new("6a2a6d5e-0000-4000-8000-000000000001"),
            node_pool: "default".into(),
            ..Node::default()
        };
        let register = Change::NodeRegister { node: Box::new(node.clone()), evals: Vec::new() };
        let index = core.commit(register).await.unwrap();
        core.store.wait_for_index(index).await;
        let signed = admin.sign_node(&node.id).await.unwrap();
        let identity = NodeSecret::new(signed.token.expose());
        let judge = |node: &Node, proof: &NodeSecret| {
            check(&core, "global", node, proof).map_err(|fault| fault.to_string())
        };
        let refused = |reason: &str| Err(format!("node {reason}"));

        assert_eq!(judge(&node, &node.secret_id), Ok(()));
        assert_eq!(judge(&node, &identity), Ok(()));
        assert!(!is_due(&core, &identity, true), "the node has a young identity");
        assert!(is_due(&core, &node.secret_id, true) && !is_due(&core, &node.secret_id, false));
        let other = Node { id: "n2".into(), secret_id: NodeSecret::new("s"), ..Node::default() };
        let of_another = "n2 did not prove who it is: its identity is refused: it belongs to another node";
        assert_eq!(judge(&other, &identity), refused(of_another));
        let wrong = "n1 did not prove who it is: wrong secret";
        assert_eq!(judge(&node, &NodeSecret::new("x")), refused(wrong));
        let changed = NodeSecret::new(format!("{}x", identity.expose()));
        assert!(judge(&node, &changed).unwrap_err().contains("its identity is refused"));
        // Another key signs from now on. The old identity stays valid, and a new one is due.
        admin.rotate_key(false, None).await.unwrap();
        assert_eq!(judge(&node, &identity), Ok(()));
        assert!(is_due(&core, &identity, false));
        clock.lock().wall = at(1000 + 25 * HOUR);
        let expired = "n1 did not prove who it is: its identity is refused: it has expired";
        assert_eq!(judge(&node, &identity), refused(expired));
    }

    /// Creating a key pair takes long on a slow server, and nodes that wait for it time out after a second.
    #[tokio::test]
    async fn callers_that_stop_waiting_do_not_discard_the_first_key_pair() {
        let start = Moment { wall: at(1000), boot: BootInstant::from_nanos(1) };
        for heartbeats in [false, true] {
            let (core, _clock) = Core::with_clock(start).await;
            let admin = Admin::new(core.clone(), "global".into(), AclConfig::default(), None);
            core.keyring.make_cluster_key().unwrap();
            admin.settle_keys().await.unwrap();
            let node = Node { id: "n1".into(), node_pool: "default".into(), ..Node::default() };
            let register = Change::NodeRegister { node: Box::new(node.clone()), evals: Vec::new() };
            let index = core.commit(register).await.unwrap();
            core.store.wait_for_index(index).await;
            if heartbeats {
                // A heartbeat does not wait at all.
                assert_eq!(admin.renewed_identity(&node.id).await, None);
            } else {
                let sign = std::pin::pin!(admin.sign_node(&node.id));
                assert!(futures::poll!(sign).is_pending());
            }
            let active = core.keyring.active();
            while core.keyring.known_signer(&active).is_none() {
                tokio::task::yield_now().await;
            }
            assert!(admin.renewed_identity(&node.id).await.is_some());
        }
    }
}

//! Logins that were begun and are not yet completed. Only the server that began a login keeps it.

use super::OidcDone;
use super::fault::AuthUrlFault;
use crate::core::new_id;
use caravan_types::{Nanos, UnixNanos};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The time within which a login may be completed.
const LIFE: Nanos = Nanos::from_secs(300);
/// The maximum number of pending logins; the oldest is dropped first.
const MAX_PENDING: usize = 10_000;

/// A pending login. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Begun {
    method: String,
    pub(super) redirect_uri: String,
    /// The `state` value that the redirect must return.
    pub(super) state: String,
    /// The PKCE verifier: it proves to the provider that the code comes from the party that began the login.
    pub(super) verifier: Option<String>,
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Begun {
    pub(super) fn new(method: String, redirect_uri: String, proof: bool) -> Self {
        let random = || new_id().replace('-', "");
        let state = format!("st_{}", random());
        let verifier = proof.then(|| format!("{}{}", random(), random()));
        Self { method, redirect_uri, state, verifier }
    }

    /// Whether a completion belongs to this login.
    pub(super) fn is_of(&self, done: &OidcDone) -> bool {
        self.method == done.method && self.redirect_uri == done.redirect_uri && self.state == done.state
    }
}

/// All pending logins, by the nonce of the client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logins(Arc<Mutex<HashMap<String, (UnixNanos, Begun)>>>);

impl Logins {
    pub(super) fn begin(&self, nonce: &str, begun: Begun, now: UnixNanos) -> Result<(), AuthUrlFault> {
        let mut all = self.0.lock();
        all.retain(|_, (since, _)| now.since(*since) < LIFE);
        if all.contains_key(nonce) {
            return Err(AuthUrlFault::NonceTaken);
        }
        if all.len() >= MAX_PENDING {
            let oldest = all.iter().min_by_key(|(_, (since, _))| *since).map(|(nonce, _)| nonce.clone());
            oldest.and_then(|nonce| all.remove(&nonce));
        }
        all.insert(nonce.to_owned(), (now, begun));
        Ok(())
    }

    /// Removes and returns a pending login, because a login can be completed once only.
    pub(super) fn take(&self, nonce: &str, now: UnixNanos) -> Option<Begun> {
        let mut all = self.0.lock();
        all.remove(nonce).filter(|(since, _)| now.since(*since) < LIFE).map(|(_, begun)| begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_completed_once_and_in_time() {
        let logins = Logins::default();
        let begun = Begun::new("sso".into(), "http://localhost/cb".into(), true);
        let at = |secs: i64| UnixNanos(secs * 1_000_000_000);
        logins.begin("n", begun.clone(), at(0)).unwrap();
        assert!(logins.begin("n", begun.clone(), at(1)).is_err());
        assert_eq!(logins.take("n", at(2)), Some(begun.clone()));
        assert_eq!(logins.take("n", at(2)), None);
        logins.begin("n", begun.clone(), at(3)).unwrap();
        assert_eq!(logins.take("n", at(303)), None);
        let done = OidcDone {
            method: "sso".into(),
            redirect_uri: "http://localhost/cb".into(),
            state: begun.state.clone(),
            ..OidcDone::default()
        };
        assert!(begun.is_of(&done));
        assert!(!begun.is_of(&OidcDone { state: "other".into(), ..done.clone() }));
        assert!(!begun.is_of(&OidcDone { redirect_uri: "http://localhost/x".into(), ..done }));
        assert!(!format!("{begun:?}").contains(&begun.state));
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let logins = Logins::default();
        let begun = Begun::new("sso".into(), "r".into(), false);
        for n in 0..=i64::try_from(MAX_PENDING).unwrap() {
            logins.begin(&n.to_string(), begun.clone(), UnixNanos(n)).unwrap();
        }
        assert_eq!(logins.take("0", UnixNanos(0)), None);
        assert!(logins.take("1", UnixNanos(0)).is_some());
    }
}

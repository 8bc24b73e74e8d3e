//! What holds for all connections: how many a client may have, and headers that an operator adds.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Settings of the API's listener.
#[derive(Clone, Debug)]
pub struct Transport {
    /// Connections that one address may have at a time; 0 = any number.
    pub connections_per_client: usize,
    /// Set on every answer, unless the route sets them itself.
    pub headers: HeaderMap,
}

impl Default for Transport {
    /// As the reference: a hundred connections, no headers.
    fn default() -> Self {
        Self { connections_per_client: 100, headers: HeaderMap::new() }
    }
}

impl Transport {
    /// Reads headers of a configuration. The error names the one that is none.
    ///
    /// # Errors
    /// If a name or a value is not that of a header.
    pub fn read_headers<'h>(
        pairs: impl IntoIterator<Item = (&'h String, &'h String)>,
    ) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let (Ok(key), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) else {
                return Err(format!("{name:?} with this value is not a header"));
            };
            headers.insert(key, value);
        }
        Ok(headers)
    }
}

/// Surplus connections that are answered at once, and in each second after that.
const REFUSALS: u32 = 100;
const REFUSALS_PER_SECOND: u32 = 10;

/// What surplus connections are told before they are closed.
pub(crate) const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\n\
Connection: close\r\n\r\nYour IP is issuing too many concurrent connections, please rate limit your calls\n";

/// Counts the connections of each address.
#[derive(Debug)]
pub(crate) struct Gate {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    open: HashMap<IpAddr, usize>,
    refusals: u32,
    since: Instant,
}

/// A connection that is counted, until dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    gate: Arc<Gate>,
    address: IpAddr,
}

/// Whether a connection comes in.
#[derive(Debug)]
pub(crate) enum Entry {
    In(Option<Ticket>),
    /// Refused, with words or without.
    Out {
        answered: bool,
    },
}

impl Gate {
    pub(crate) fn new(most: usize, now: Instant) -> Arc<Self> {
        let counts = Counts { open: HashMap::new(), refusals: 0, since: now };
        Arc::new(Self { most, counts: Mutex::new(counts) })
    }

    /// A thread that panicked while it held the lock left whole counts only.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Entry {
        if self.most == 0 {
            return Entry::In(None);
        }
        let mut counts = self.lock();
        let open = counts.open.entry(address).or_insert(0);
        if *open < self.most {
            *open += 1;
            return Entry::In(Some(Ticket { gate: self.clone(), address }));
        }
        // Answers to a flood are work as well.
        let seconds = now.saturating_duration_since(counts.since).as_secs();
        if seconds > 0 {
            let regained = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(REFUSALS_PER_SECOND);
            counts.refusals = counts.refusals.saturating_sub(regained);
            counts.since += Duration::from_secs(seconds);
        }
        let answered = counts.refusals < REFUSALS;
        counts.refusals += u32::from(answered);
        Entry::Out { answered }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.gate.lock();
        if let Some(open) = counts.open.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                counts.open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    #[test]
    fn each_address_has_its_own_count() {
        let now = Instant::now();
        let gate = Gate::new(2, now);
        let (first, second) = (gate.enter(address(1), now), gate.enter(address(1), now));
        assert!(matches!((&first, &second), (Entry::In(Some(_)), Entry::In(Some(_)))));
        assert!(matches!(gate.enter(address(1), now), Entry::Out { answered: true }));
        assert!(matches!(gate.enter(address(2), now), Entry::In(Some(_))));
        drop(first);
        assert!(matches!(gate.enter(address(1), now), Entry::In(Some(_))));
        assert!(matches!(Gate::new(0, now).enter(address(1), now), Entry::In(None)));
    }

    #[test]
    fn a_flood_is_not_answered_without_end() {
        let now = Instant::now();
        let gate = Gate::new(1, now);
        let _in = gate.enter(address(1), now);
        let answered = |at| matches!(gate.enter(address(1), at), Entry::Out { answered: true });
        assert_eq!((0..200).filter(|_| answered(now)).count(), 100);
        let later = now + Duration::from_secs(2);
        assert_eq!((0..200).filter(|_| answered(later)).count(), 20);
    }

    #[test]
    fn headers_are_read_or_named() {
        let pairs = [("X-Frame-Options".to_owned(), "DENY".to_owned())];
        let headers = Transport::read_headers(pairs.iter().map(|(k, v)| (k, v))).unwrap();
        assert_eq!(headers["x-frame-options"], "DENY");
        let pairs = [("not a name".to_owned(), "x".to_owned())];
        let error = Transport::read_headers(pairs.iter().map(|(k, v)| (k, v))).unwrap_err();
        assert!(error.contains("not a name"), "{error}");
    }
}

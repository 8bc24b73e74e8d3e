//! Settings of all connections: the limit for each client, and headers that an operator adds.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Settings of the API's listener.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The maximum number of concurrent connections of one address; 0 means no limit.
    pub connections_per_client: usize,
    /// Headers of every answer, unless the route sets them itself.
    pub headers: HeaderMap,
}

impl Default for Transport {
    /// Returns Nomad's defaults: a hundred connections, no headers.
    fn default() -> Self {
        Self { connections_per_client: 100, headers: HeaderMap::new() }
    }
}

impl Transport {
    /// Parses the headers of a configuration. The error names the invalid header.
    ///
    /// # Errors
    /// Fails if a name or a value is not valid in a header.
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

/// The answer to surplus connections, before they are closed.
pub(crate) const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\n\
Connection: close\r\n\r\nYour IP is issuing too many concurrent connections, please rate limit your calls\n";

#[cfg(test)]
mod tests {
    use super::*;

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

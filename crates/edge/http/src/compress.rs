//! Compressed answers (docs/reference/http-api.md, section 1.1).

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};
use std::io::{self, Write};

/// A content coding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// Returns the first coding that the request accepts and this agent supports.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).find_map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            let name = pieces.next()?;
            let refused = pieces.any(|piece| {
                let weight = piece.strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
                weight.is_some_and(|weight| weight <= 0.0)
            });
            match name.to_ascii_lowercase().as_str() {
                _ if refused => None,
                "gzip" | "x-gzip" => Some(Self::Gzip),
                "deflate" => Some(Self::Deflate),
                _ => None,
            }
        })
    }

    pub(crate) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        })
    }

    /// Compresses a body, with speed preferred to size because most clients are near.
    pub(crate) fn pack(self, body: &[u8]) -> io::Result<Bytes> {
        let out = Vec::with_capacity(body.len() / 4 + 64);
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, Compression::fast());
                encoder.write_all(body)?;
                encoder.finish().map(Bytes::from)
            }
            // RFC 9110 defines `deflate` as the form with a zlib header.
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(out, Compression::fast());
                encoder.write_all(body)?;
                encoder.finish().map(Bytes::from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{GzDecoder, ZlibDecoder};
    use std::io::Read;

    #[test]
    fn the_first_known_coding_wins() {
        let accepted = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            Coding::accepted(&headers)
        };
        assert_eq!(accepted("gzip"), Some(Coding::Gzip));
        assert_eq!(accepted("br, deflate;q=0.5, gzip"), Some(Coding::Deflate));
        assert_eq!(accepted("gzip;q=0, identity"), None);
        assert_eq!(accepted("identity"), None);
        assert_eq!(Coding::accepted(&HeaderMap::new()), None);
    }

    #[test]
    fn what_is_packed_unpacks() {
        let body = b"[1,2,3]".repeat(1000);
        let packed = Coding::Gzip.pack(&body).unwrap();
        let mut out = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
        assert!(out == body && packed.len() < body.len() / 10);
        let packed = Coding::Deflate.pack(&body).unwrap();
        out.clear();
        ZlibDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
        assert!(out == body);
    }
}

//! Targets of redirects (RFC 9110, section 10.2.2).

use super::FetchError;
use http::Uri;

/// Returns the URL that a `Location` header names, relative to the URL that returned the header.
///
/// # Errors
/// Fails if the target is not an HTTP URL, or would leave HTTPS.
pub fn resolve(from: &Uri, target: &str) -> Result<Uri, FetchError> {
    let bad = || FetchError::BadTarget { target: target.to_owned() };
    let scheme = from.scheme_str().ok_or_else(bad)?;
    let authority = from.authority().ok_or_else(bad)?.as_str();
    let whole = if target.contains("://") {
        target.to_owned()
    } else if let Some(rest) = target.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if target.starts_with('/') {
        format!("{scheme}://{authority}{target}")
    } else {
        // A relative path replaces the last segment.
        let parent = from.path().rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{scheme}://{authority}{parent}/{target}")
    };
    let whole = whole.split('#').next().unwrap_or_default();
    let url: Uri = whole.parse().map_err(|_| bad())?;
    match url.scheme_str() {
        Some("http") if scheme == "https" => Err(FetchError::Downgrade { to: url }),
        Some("http" | "https") => Ok(url),
        _ => Err(FetchError::Scheme { url }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_relative_to_their_origin() {
        let from: Uri = "http://u:p@h:81/a/b?x=1".parse().unwrap();
        for (target, url) in [
            ("http://g/x", "http://g/x"),
            ("/x?y", "http://u:p@h:81/x?y"),
            ("x", "http://u:p@h:81/a/x"),
            ("//g/x#y", "http://g/x"),
            ("https://g/x", "https://g/x"),
        ] {
            assert_eq!(resolve(&from, target).unwrap(), url);
        }
    }

    #[test]
    fn targets_never_leave_https() {
        let from: Uri = "https://h/a".parse().unwrap();
        assert_eq!(resolve(&from, "/x").unwrap(), "https://h/x");
        assert!(matches!(resolve(&from, "http://h/x"), Err(FetchError::Downgrade { .. })));
        assert!(matches!(resolve(&from, "ftp://h/x"), Err(FetchError::Scheme { .. })));
        assert!(matches!(resolve(&from, "http://a b/"), Err(FetchError::BadTarget { .. })));
    }
}

//! Names of images: `[host[:port]/]path[:tag][@digest]`.

use caravan_drivers::{Error, Result};

/// The host of images whose name has none.
const HUB: &str = "docker.io";

/// The name of an image, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host and path, as written.
    pub(crate) name: String,
    /// The tag, as written; `latest` if there is neither tag nor digest.
    pub(crate) tag: Option<String>,
    /// The digest: algorithm and number.
    pub(crate) digest: Option<String>,
}

impl Reference {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::Config(format!(
                "unable to create local docker image {text:?}: does not match registry specification"
            ))
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) if is_digest(digest) => (rest, Some(digest.to_owned())),
            Some(_) => return Err(bad()),
            None => (text, None),
        };
        // A colon before a slash belongs to the host's port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag.to_owned())),
            _ => (rest, None),
        };
        if !is_name(name) || tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(bad());
        }
        let tag = if digest.is_none() { tag.or_else(|| Some("latest".into())) } else { tag };
        Ok(Self { name: name.to_owned(), tag, digest })
    }

    /// Returns the registry's host with its port, as files with credentials name it; [`None`] for the Hub.
    pub(crate) fn host(&self) -> Option<&str> {
        let (first, _) = self.name.split_once('/')?;
        is_host(first).then_some(first).filter(|host| *host != HUB && *host != "index.docker.io")
    }

    /// Returns the whole name, with the default tag if none is written.
    pub(crate) fn full(&self) -> String {
        match (&self.tag, &self.digest) {
            (_, Some(digest)) => format!("{}@{digest}", self.name),
            (Some(tag), None) => format!("{}:{tag}", self.name),
            (None, None) => self.name.clone(),
        }
    }

    /// Returns whether the registry must be queried even if the image is present: the tag may have moved.
    pub(crate) fn moves(&self) -> bool {
        self.digest.is_none() && self.tag.as_deref().is_none_or(|tag| tag == "latest")
    }
}

/// Returns whether the part before the first slash is a host, and not a part of the path.
fn is_host(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':']) || part.chars().any(|c| c.is_ascii_uppercase())
}

fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (Some(first), rest),
        _ => (None, name),
    };
    let host_is_good = host.is_none_or(|host| {
        let (host, port) = host.split_once(':').unwrap_or((host, "1"));
        !host.is_empty()
            && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
            && !port.is_empty()
            && port.chars().all(|c| c.is_ascii_digit())
    });
    host_is_good && name.len() <= 255 && path.split('/').all(is_part)
}

/// Returns whether a part of the path is letters and digits with single dots, one or two underscores, or dashes
/// between them.
fn is_part(part: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = part.starts_with(letter) && part.ends_with(letter);
    let separators = part.split(letter).filter(|text| !text.is_empty());
    ends && separators.clone().all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, number)| {
        !algorithm.is_empty()
            && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c))
            && number.len() >= 32
            && number.chars().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_split() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, name, tag, host) in [
            ("busybox", "busybox", Some("latest"), None),
            ("busybox:1", "busybox", Some("1"), None),
            ("docker.io/library/busybox:1", "docker.io/library/busybox", Some("1"), None),
            ("a/b", "a/b", Some("latest"), None),
            ("localhost/b:x", "localhost/b", Some("x"), Some("localhost")),
            ("r.example:5000/a/b_c", "r.example:5000/a/b_c", Some("latest"), Some("r.example:5000")),
            (&format!("a@{digest}"), "a", None, None),
            (&format!("a:1@{digest}"), "a", Some("1"), None),
        ] {
            let read = Reference::parse(text).unwrap();
            assert_eq!((read.name.as_str(), read.tag.as_deref(), read.host()), (name, tag, host), "{text}");
        }
        assert_eq!(Reference::parse(&format!("a:1@{digest}")).unwrap().full(), format!("a@{digest}"));
        assert_eq!(Reference::parse("a").unwrap().full(), "a:latest");
        assert!(Reference::parse("a").unwrap().moves() && !Reference::parse("a:1").unwrap().moves());
    }

    #[test]
    fn wrong_names_are_refused() {
        for text in
            ["", " ", "A", "a:", "a/", "/a", "a//b", "a..b", "a_", "a:b c", "a@sha256:1", "h:x/a", "a:-b"]
        {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_full_name_is_read_back(text in "([a-z]{1,3}\\.x(:[0-9]{1,3})?/)?[a-z0-9]{1,5}(/[a-z-_.]{1,5}x)?(:[a-zA-Z0-9.]{1,5})?") {
            if let Ok(read) = Reference::parse(&text) {
                prop_assert_eq!(Reference::parse(&read.full()).unwrap(), read);
            }
        }
    }
}

//! The source of an artifact, as job files write it (docs/reference/jobspec.md, section 4.9): a URL whose query or
//! options also contain instructions for the client. Pure.

use caravan_base::percent;
use http::Uri;
use std::collections::BTreeMap;

/// The packing of the downloaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// A plain file.
    None,
    /// One compressed file.
    Gz,
    Tar,
    TarGz,
    Zip,
}

/// Kinds of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DigestKind {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

/// The expected digest of the downloaded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) kind: DigestKind,
    /// The digest as hexadecimal digits in lower case.
    pub(super) hex: String,
}

/// A parsed source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The URL to request.
    pub(super) url: Uri,
    pub(super) packing: Packing,
    pub(super) checksum: Option<Checksum>,
    /// The part of an archive that is unpacked; empty for all.
    pub(super) inner: String,
    /// The file name, unless the destination sets one.
    pub(super) file_name: String,
}

impl Source {
    /// Parses a source.
    pub(super) fn parse(source: &str, options: &BTreeMap<String, String>) -> Result<Self, String> {
        let url = plain_url(source)?;
        let scheme = if url.starts_with("https://") { "https" } else { "http" };
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err("the source names no host".to_owned());
        }
        let (path, inner) = path.split_once("//").unwrap_or((path, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent::decode_form(key), percent::decode_form(value))
        });
        let mut ours = BTreeMap::new();
        let mut theirs = Vec::new();
        for (key, value) in pairs.chain(options.iter().map(|(k, v)| (k.clone(), v.clone()))) {
            match key.as_str() {
                "checksum" | "archive" | "filename" => drop(ours.insert(key, value)),
                _ => theirs.push(format!("{}={}", percent::encode(&key), percent::encode(&value))),
            }
        }
        let query = if theirs.is_empty() { String::new() } else { format!("?{}", theirs.join("&")) };
        let url: Uri = format!("{scheme}://{host}/{path}{query}")
            .parse()
            .map_err(|error| format!("the source is not a URL: {error}"))?;
        let base = path.rsplit('/').next().map(percent::decode_form).unwrap_or_default();
        let name = ours.get("filename").cloned().unwrap_or(base);
        if matches!(name.as_str(), "." | "..") || name.contains(['/', '\0']) {
            return Err(format!("\"{name}\" cannot be the name of a file"));
        }
        Ok(Self {
            packing: packing(path, ours.get("archive").map(String::as_str))?,
            checksum: ours.get("checksum").map(|text| checksum(text)).transpose()?,
            inner: inner.trim_matches('/').to_owned(),
            file_name: name,
            url,
        })
    }
}

/// Returns the URL without a getter prefix.
fn plain_url(source: &str) -> Result<&str, String> {
    let (forced, url) = match source.split_once("::") {
        Some((getter, url)) if getter.bytes().all(|b| b.is_ascii_alphanumeric()) => (getter, url),
        _ => ("", source),
    };
    if !matches!(forced, "" | "http" | "https") {
        return Err(format!("artifacts from {forced} are not supported: only http:// and https:// are"));
    }
    match url.split_once("://") {
        Some(("http" | "https", _)) => Ok(url),
        Some((scheme, _)) => {
            Err(format!("artifacts from {scheme}:// are not supported: only http:// and https:// are"))
        }
        None => Err("the source of an artifact must be an http:// or https:// URL".to_owned()),
    }
}

fn packing(path: &str, wish: Option<&str>) -> Result<Packing, String> {
    const KNOWN: [(&str, Option<Packing>); 14] = [
        ("tar.gz", Some(Packing::TarGz)),
        ("tgz", Some(Packing::TarGz)),
        ("tar.bz2", None),
        ("tbz2", None),
        ("tar.xz", None),
        ("txz", None),
        ("tar.zst", None),
        ("tzst", None),
        ("tar", Some(Packing::Tar)),
        ("zip", Some(Packing::Zip)),
        ("gz", Some(Packing::Gz)),
        ("bz2", None),
        ("xz", None),
        ("zst", None),
    ];
    let found = match wish.unwrap_or_default() {
        "" => KNOWN.iter().find(|(ending, _)| path.ends_with(&format!(".{ending}"))),
        "false" | "0" => None,
        kind => Some(
            KNOWN
                .iter()
                .find(|(known, _)| *known == kind)
                .ok_or_else(|| format!("archive = \"{kind}\" is unknown"))?,
        ),
    };
    match found {
        None => Ok(Packing::None),
        Some((_, Some(packing))) => Ok(*packing),
        Some((kind, None)) => {
            Err(format!("{kind} archives are not supported yet: only tar, tar.gz, gz and zip are"))
        }
    }
}

fn checksum(text: &str) -> Result<Checksum, String> {
    let kinds = [
        ("md5", DigestKind::Md5, 32),
        ("sha1", DigestKind::Sha1, 40),
        ("sha256", DigestKind::Sha256, 64),
        ("sha512", DigestKind::Sha512, 128),
    ];
    let (name, hex) = text.trim().split_once(':').ok_or("the checksum must be of the form type:value")?;
    let (_, kind, length) = kinds.into_iter().find(|(known, ..)| *known == name).ok_or_else(|| {
        format!("checksums of type {name} are not supported: only md5, sha1, sha256 and sha512 are")
    })?;
    if hex.len() != length || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("the checksum must have {length} hexadecimal digits"));
    }
    Ok(Checksum { kind, hex: hex.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str, options: &[(&str, &str)]) -> Result<Source, String> {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Source::parse(source, &options)
    }

    #[test]
    fn sources_are_taken_apart() {
        let found = parse("http://h:81/a/b.tar.gz//in/side?x=1&archive=tgz", &[("y", "a b")]).unwrap();
        assert_eq!(found.url, "http://h:81/a/b.tar.gz?x=1&y=a%20b");
        assert_eq!((found.packing, found.inner.as_str()), (Packing::TarGz, "in/side"));
        assert_eq!(found.file_name, "b.tar.gz");
        let sum = format!("md5:{}", "AB".repeat(16));
        let found = parse("http::http://h/x%20y.zip", &[("archive", "false"), ("checksum", &sum)]).unwrap();
        assert_eq!((found.packing, found.file_name.as_str()), (Packing::None, "x y.zip"));
        assert_eq!(found.checksum, Some(Checksum { kind: DigestKind::Md5, hex: "ab".repeat(16) }));
        assert_eq!(parse("http://h/x", &[("filename", "y")]).unwrap().file_name, "y");
        assert_eq!(parse("https://h:81/x?y=1", &[]).unwrap().url, "https://h:81/x?y=1");
        assert_eq!(parse("https::https://h/x", &[]).unwrap().url, "https://h/x");
        for (bad, words) in [
            ("git::http://h/x", "from git are not supported"),
            ("s3://h/x", "s3://"),
            ("github.com/a/b", "must be an http:// or https:// URL"),
            ("http:///x", "no host"),
            ("http://h/x.tar.xz", "tar.xz archives"),
            ("http://h/x?checksum=crc:1", "type crc"),
            ("http://h/x?checksum=md5:1", "32 hexadecimal"),
            ("http://h/a/..", "cannot be the name"),
            ("http://h/x?filename=../y", "cannot be the name"),
        ] {
            let error = parse(bad, &[]).unwrap_err();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }
}

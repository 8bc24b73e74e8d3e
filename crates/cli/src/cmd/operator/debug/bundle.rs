//! The files of a bundle: a directory that is filled while the collecting goes on, and the archive made of it.

use caravan_types::redact::redact;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A bundle that is being made. Its directory is removed with it unless it is to stay.
#[derive(Debug)]
pub(super) struct Bundle {
    dir: PathBuf,
    stays: bool,
    files: Mutex<BTreeSet<String>>,
}

impl Bundle {
    /// Makes the directory, for the owner alone. One that is there already is refused.
    pub(super) fn create(dir: PathBuf, stays: bool) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Self { dir, stays, files: Mutex::default() })
    }

    /// Where it lies.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new file; the name's segments are separated by `/`.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        Ok(file)
    }

    /// A file with these bytes.
    pub(super) fn bytes(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(content)
    }

    /// A file with this JSON, without the secrets in it.
    pub(super) fn json(&self, name: &str, mut value: Value) -> io::Result<()> {
        redact(&mut value);
        self.bytes(name, format!("{value:#}\n").as_bytes())
    }

    /// Writes what is in it, as a list for programs and as a page for people.
    pub(super) fn index(&self) -> io::Result<()> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.json("index.json", files.iter().cloned().collect())?;
        let rows: String =
            files.iter().map(|name| format!("    <li><a href=\"{name}\">{name}</a></li>\n")).collect();
        let page = format!(
            "<!DOCTYPE html>\n<html>\n  <head><title>Debug bundle</title></head>\n  <body>\n  <ul>\n{rows}  </ul>\n  </body>\n</html>\n"
        );
        self.bytes("index.html", page.as_bytes())
    }

    /// Packs it, for the owner alone; the archive's paths begin with the directory's name.
    pub(super) fn pack(&self, name: &str, archive: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(archive)?;
        let mut packed = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        packed.append_dir_all(name, &self.dir)?;
        packed.into_inner()?.finish()?.sync_all()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if !self.stays {
            // Nobody looks there again; what cannot be removed is for the owner alone.
            let _ = caravan_sys::tree::remove(&self.dir, caravan_sys::tree::Seals::Keep);
        }
    }
}

/// A name as a segment of a path: nothing in it leads elsewhere.
pub(super) fn segment(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.trim_matches('.').is_empty() { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use serde_json::json;

    #[test]
    fn names_lead_nowhere_else() {
        for (name, want) in [("a1-b", "a1-b"), ("../x", ".._x"), ("..", "_.."), ("", "_"), ("a/b", "a_b")] {
            assert_eq!(segment(name), want);
        }
    }

    #[test]
    fn what_is_written_is_packed_and_the_directory_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, archive) = (dir.path().join("in"), dir.path().join("b.tar.gz"));
        let bundle = Bundle::create(inner.clone(), false).unwrap();
        assert!(Bundle::create(inner.clone(), false).is_err(), "another one's directory is left alone");
        bundle.json("cluster/agent-self.json", json!({"config": {"Token": "hunter2"}})).unwrap();
        bundle.bytes("client/n1/monitor.log", b"line\n").unwrap();
        bundle.index().unwrap();
        bundle.pack("bundle", &archive).unwrap();
        drop(bundle);
        assert!(!inner.exists());
        let mut unpacked = tar::Archive::new(GzDecoder::new(File::open(&archive).unwrap()));
        unpacked.unpack(dir.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join("bundle").join(name)).unwrap();
        assert!(!read("cluster/agent-self.json").contains("hunter2"));
        let index: Vec<String> = serde_json::from_str(&read("index.json")).unwrap();
        assert_eq!(index, ["client/n1/monitor.log", "cluster/agent-self.json"]);
        assert!(read("index.html").contains("href=\"client/n1/monitor.log\""));
    }
}

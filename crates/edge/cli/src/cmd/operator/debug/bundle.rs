//! The files of a debug bundle: a directory that the collection fills, and its archive.

use caravan_types::redact::redact;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A bundle under construction. Dropping it removes the directory, unless the directory is the output.
#[derive(Debug)]
pub(super) struct Bundle {
    dir: PathBuf,
    stays: bool,
    files: Mutex<BTreeSet<String>>,
}

impl Bundle {
    /// Creates the directory and those above it, accessible only to their owner. Fails if the directory exists.
    pub(super) fn create(dir: PathBuf, stays: bool) -> io::Result<Self> {
        if let Some(above) = dir.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Self { dir, stays, files: Mutex::default() })
    }

    /// Returns the directory of the bundle.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates a file. `name` separates its path segments by `/`.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        self.files.lock().insert(name.to_owned());
        Ok(file)
    }

    /// Writes a file with these bytes.
    pub(super) fn bytes(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(content)
    }

    /// Writes a file with this JSON after redacting its secrets.
    pub(super) fn json(&self, name: &str, mut value: Value) -> io::Result<()> {
        redact(&mut value);
        self.bytes(name, format!("{value:#}\n").as_bytes())
    }

    /// Writes the table of contents, as JSON for programs and as a page for people.
    pub(super) fn index(&self) -> io::Result<()> {
        let files = self.files.lock().clone();
        self.json("index.json", files.iter().cloned().collect())?;
        let rows: String =
            files.iter().map(|name| format!("    <li><a href=\"{name}\">{name}</a></li>\n")).collect();
        let page = format!(
            "<!DOCTYPE html>\n<html>\n  <head><title>Debug bundle</title></head>\n  <body>\n  <ul>\n{rows}  </ul>\n  </body>\n</html>\n"
        );
        self.bytes("index.html", page.as_bytes())
    }

    /// Packs the directory into an archive, accessible only to its owner. Paths begin with the directory's name.
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
            // Nothing reads the directory again. If its removal fails, only its owner can access it.
            let _ = caravan_sys::tree::remove(&self.dir, caravan_sys::tree::Seals::Keep);
        }
    }
}

/// Turns a name into one path segment, which cannot point outside its directory.
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
    fn the_output_directory_need_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("a/b");
        let bundle = Bundle::create(output.join("bundle"), true).unwrap();
        bundle.bytes("x", b"").unwrap();
        drop(bundle);
        let mode = std::os::unix::fs::MetadataExt::mode(&output.metadata().unwrap());
        assert!(output.join("bundle/x").exists() && mode & 0o077 == 0);
        Bundle::create(output.join("second"), true).unwrap();
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

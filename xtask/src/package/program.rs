//! The facts of a program file on which its packages depend.

use anyhow::{Context, bail};
use std::path::Path;

/// A program to pack.
pub(super) struct Program {
    pub(super) bytes: Vec<u8>,
    pub(super) architecture: Architecture,
    pub(super) linkage: Linkage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    /// Returns the kernel's and Debian's name.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("x86_64", "amd64"),
            Self::Aarch64 => ("aarch64", "arm64"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Linkage {
    /// The program runs without a loader and libraries.
    Static,
    /// The program needs a GNU C library of at least this version.
    Glibc(u32, u32),
}

impl Program {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(bytes).with_context(|| format!("{} cannot be packed", path.display()))
    }

    /// Returns the mark of a static program in the names of files.
    pub(super) fn flavour(&self) -> &'static str {
        if self.linkage == Linkage::Static { "-static" } else { "" }
    }

    /// Reads the ELF header (elf(5)): the machine, and whether a program interpreter is named.
    pub(super) fn parse(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let number = |at: usize, size: usize| -> anyhow::Result<u64> {
            let field = bytes.get(at..at + size).context("the ELF header is cut off")?;
            Ok(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        };
        if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
            bail!("it is no ELF program of 64 bits, little endian");
        }
        let architecture = match number(18, 2)? {
            62 => Architecture::X86_64,
            183 => Architecture::Aarch64,
            other => bail!("its machine is {other}, neither x86_64 (62) nor aarch64 (183)"),
        };
        let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut has_interpreter = false;
        for index in 0..count {
            let at = usize::try_from(headers + index * size)?;
            // PT_INTERP
            has_interpreter |= number(at, 4)? == 3;
        }
        let linkage = if has_interpreter { newest_glibc(&bytes)? } else { Linkage::Static };
        Ok(Self { bytes, architecture, linkage })
    }
}

/// Returns the newest version of the C library among the versions of the imported symbols.
fn newest_glibc(bytes: &[u8]) -> anyhow::Result<Linkage> {
    let pattern = regex::bytes::Regex::new(r"\x00GLIBC_(\d+)\.(\d+)")?;
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<u32>().ok());
    let versions =
        pattern.captures_iter(bytes).filter_map(|found| Some((number(&found[1])?, number(&found[2])?)));
    let (major, minor) =
        versions.max().context("it needs a loader, but imports nothing of the GNU C library")?;
    Ok(Linkage::Glibc(major, minor))
}

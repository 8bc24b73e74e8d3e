//! The writer: appends lines `who boot-time-ns` to the file `stamps` on a volume.
//!
//! Most lines are written to the file that was opened first, so a writer that should have lost its volume still
//! leaves stamps there. Each eighth line is written to the file at the current path, so a mount that was removed from
//! above the writer shows as well.

use crate::log::boot_time;
use crate::options::Write as Options;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

fn open(path: &Path) -> Result<File> {
    File::options().create(true).append(true).open(path).with_context(|| format!("open {}", path.display()))
}

/// Writes until it is killed or a write fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = options.dir.join("stamps");
    let mut file = open(&path)?;
    // A restarted task of an allocation is another writer.
    let who = format!("{}.{}", options.id, boot_time());
    println!("writing as {who}");
    for n in 0_u64.. {
        let line = format!("{who} {}\n", boot_time());
        let written =
            if n % 8 == 7 { open(&path)?.write(line.as_bytes()) } else { file.write(line.as_bytes()) };
        written.with_context(|| format!("write to {}", path.display()))?;
        std::thread::sleep(Duration::from_millis(options.every_ms));
    }
    Ok(())
}

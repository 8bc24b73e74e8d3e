//! The writer: one line `who boot-time-ns` after the other, to the file `stamps` on a volume.
//!
//! Most lines go to the file as it was opened first, so a writer that should have lost its volume still
//! leaves its mark there. Each eighth goes to whatever the path leads to now, so a mount that is gone from
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

/// Writes until it is killed or cannot.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = options.dir.join("stamps");
    let mut file = open(&path)?;
    // A task that is started again in its allocation is another writer.
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

//! A minimal FUSE file system (fuse(4)): a directory with one file whose name contains its generation. The daemon is
//! a thread that can be ended while the file system is mounted, like a crashed daemon.

use caravan_sys::mount::{Restrictions, mount_fs};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The daemon; when it is dropped, it ends and the mount is dead.
pub struct Daemon {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Mounts the file system.
pub fn mount(at: &Path, generation: u32) -> std::io::Result<Daemon> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    mount_fs("fuse", at, Restrictions::default(), &data).map_err(std::io::Error::other)?;
    let end = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&end);
    let thread = std::thread::spawn(move || serve(device, generation, &asked));
    Ok(Daemon { end, thread: Some(thread) })
}

fn serve(mut device: File, generation: u32, end: &AtomicBool) {
    let mut buffer = vec![0; 256 * 1024];
    while !end.load(Ordering::SeqCst) {
        let mut waiting = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, PollTimeout::from(20u8)).unwrap_or(0) == 0 {
            continue;
        }
        let Ok(size) = device.read(&mut buffer) else { return };
        let request = &buffer[..size];
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let (opcode, node) = (number(4), u64::from_ne_bytes(request[16..24].try_into().unwrap()));
        let answer = match opcode {
            // FORGET and INTERRUPT have no response.
            2 | 36 | 42 => continue,
            1 => lookup(&request[40..], generation),
            3 => Ok(attributes_out(node)),
            17 => Ok(vec![0; 80]),
            26 => Ok(init()),
            27 => Ok(vec![0; 16]),
            28 | 29 | 38 => Ok(Vec::new()),
            _ => Err(nix::libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut reply = length.to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        // The request may have been interrupted meanwhile.
        let _ = device.write_all(&reply);
    }
}

fn init() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [7u32, 31, 0, 0, 0, 4096, 1] {
        out.extend(word.to_ne_bytes());
    }
    out.resize(64, 0);
    out
}

fn attributes(node: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(node.to_ne_bytes());
    // Size, blocks, times.
    out.extend([0; 40 + 12]);
    let mode = if node == FILE { 0o100_644 } else { 0o040_755 };
    for word in [mode, 1u32, 0, 0, 0, 4096, 0] {
        out.extend(word.to_ne_bytes());
    }
    out
}

fn attributes_out(node: u64) -> Vec<u8> {
    [vec![0; 16], attributes(if node == FILE { FILE } else { ROOT })].concat()
}

fn lookup(name: &[u8], generation: u32) -> Result<Vec<u8>, i32> {
    if name.split(|b| *b == 0).next() != Some(format!("generation-{generation}").as_bytes()) {
        return Err(nix::libc::ENOENT);
    }
    Ok([FILE.to_ne_bytes().to_vec(), vec![0; 32], attributes(FILE)].concat())
}

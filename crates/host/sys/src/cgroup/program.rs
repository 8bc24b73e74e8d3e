//! Device programs at groups of version 2 (bpf(2)). An attached program belongs to its group: it remains when the
//! process that attached it ends, applies to groups below, and is removed with the group.

use super::devices::{DeviceRefusal, DeviceRule, Instruction, assemble};
use crate::{Error, Result};
use nix::libc;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

// Commands, types and flags of linux/bpf.h.
const LOAD: libc::c_int = 5;
const ATTACH: libc::c_int = 8;
const DETACH: libc::c_int = 9;
const OPEN_BY_ID: libc::c_int = 13;
const GET_INFO: libc::c_int = 15;
const QUERY: libc::c_int = 16;
const TYPE_CGROUP_DEVICE: u32 = 15;
const AT_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 1 << 1;
const REPLACE: u32 = 1 << 2;

/// The name of our programs, which distinguishes them from programs of others at the same group.
const NAME: [u8; 16] = *b"caravan_devices\0";

/// The most programs at one group (`BPF_CGROUP_MAX_PROGS` of the kernel).
const MAX_PROGRAMS: u32 = 64;

#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
}

#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct OpenById {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct GetInfo {
    program: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`, up to the name.
#[repr(C)]
#[derive(Default)]
struct Info {
    before: [u64; 8],
    name: [u8; 16],
}

/// Calls bpf(2).
///
/// # Safety
///
/// `attributes` has the layout of the command, and each address in it is valid for the command's reads and writes.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let size = size_of_val(attributes);
    // SAFETY: the caller vouches for the attributes; the kernel accesses `size` bytes of them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(libc::c_int::try_from(result).unwrap_or(0)) }
}

fn number(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address<T>(start: *const T) -> u64 {
    // An address has at most 64 bits on every supported architecture.
    start.expose_provenance() as u64
}

/// Loads a program, which the kernel unloads when nothing refers to it any more.
fn load_once(program: &[Instruction]) -> io::Result<OwnedFd> {
    // The kernel requires a licence for every program, and allows some of its helpers only for GPL programs; this
    // program calls none.
    let license = c"Apache-2.0";
    let mut attributes = Load {
        program_type: TYPE_CGROUP_DEVICE,
        instruction_count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: address(program.as_ptr()),
        license: address(license.as_ptr()),
        name: NAME,
        attach_type: AT_CGROUP_DEVICE,
        ..Load::default()
    };
    // SAFETY: `Load` has the layout of BPF_PROG_LOAD; both addresses are of live values with the stated length or end.
    let fd = unsafe { bpf(LOAD, &mut attributes) }?;
    // SAFETY: the kernel returned a new descriptor, which has no other owner. It is closed at exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn load(program: &[Instruction]) -> Result<OwnedFd, DeviceRefusal> {
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => DeviceRefusal::NotPermitted,
        Some(libc::EINVAL | libc::ENOSYS | libc::E2BIG) => DeviceRefusal::NoPrograms,
        other => DeviceRefusal::Other(other.unwrap_or(libc::EIO)),
    };
    match load_once(program) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            // Before Linux 5.11, programs count as locked memory of the user, with a usual limit of 64 KiB.
            use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
            let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return Err(refused(error)) };
            if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
                return Err(refused(error));
            }
            let loaded = load_once(program);
            // The caller's children inherit the limit, so it must not stay.
            let _restored = setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard);
            loaded.map_err(refused)
        }
        loaded => loaded.map_err(refused),
    }
}

/// Checks that the kernel accepts device programs from the caller.
pub(super) fn probe() -> Result<(), DeviceRefusal> {
    load(&assemble(&[])).map(drop)
}

/// Opens our programs at a group. Programs of others are left alone; a use must pass them as well.
fn own_programs(group: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0_u32; MAX_PROGRAMS as usize];
    let mut query = Query {
        target: number(&group),
        attach_type: AT_CGROUP_DEVICE,
        ids: address(ids.as_mut_ptr()),
        count: MAX_PROGRAMS,
        ..Query::default()
    };
    // SAFETY: `Query` has the layout of BPF_PROG_QUERY; `ids` has room for `count` numbers.
    unsafe { bpf(QUERY, &mut query) }?;
    let mut own = Vec::new();
    for id in &ids[..usize::try_from(query.count).unwrap_or(0).min(ids.len())] {
        // SAFETY: `OpenById` has the layout of BPF_PROG_GET_FD_BY_ID, without addresses.
        let Ok(fd) = (unsafe { bpf(OPEN_BY_ID, &mut OpenById { id: *id, ..OpenById::default() }) }) else {
            // The program was detached meanwhile.
            continue;
        };
        // SAFETY: the kernel returned a new descriptor, which has no other owner.
        let program = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = Info::default();
        let mut attributes = GetInfo {
            program: number(&program),
            length: u32::try_from(size_of_val(&info)).unwrap_or(0),
            info: address(&raw mut info),
        };
        // SAFETY: `GetInfo` has the layout of BPF_OBJ_GET_INFO_BY_FD; `info` has `length` bytes, of any value.
        unsafe { bpf(GET_INFO, &mut attributes) }?;
        if info.name == NAME {
            own.push(program);
        }
    }
    Ok(own)
}

/// Limits a group to the devices of the rules, in place of earlier rules. At every moment, the group has the program
/// of the earlier rules, the new program, or both.
pub(super) fn limit(dir: &Path, rules: &[DeviceRule]) -> Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let group = rustix::fs::open(dir, flags, Mode::empty()).map_err(Error::errno("open", dir))?;
    let refused = |error: io::Error| {
        Error::Devices(match error.raw_os_error() {
            Some(libc::EPERM) => DeviceRefusal::Overruled,
            Some(libc::EINVAL | libc::ENOSYS) => DeviceRefusal::NoPrograms,
            other => DeviceRefusal::Other(other.unwrap_or(libc::EIO)),
        })
    };
    let program = load(&assemble(rules)).map_err(Error::Devices)?;
    let mut earlier = own_programs(std::os::fd::AsFd::as_fd(&group)).map_err(refused)?.into_iter();
    let replaced = earlier.next();
    let mut attributes = Attach {
        target: number(&group),
        program: number(&program),
        attach_type: AT_CGROUP_DEVICE,
        flags: if replaced.is_some() { ALLOW_MULTI | REPLACE } else { ALLOW_MULTI },
        replaced: replaced.as_ref().map_or(0, number),
    };
    // SAFETY: `Attach` has the layout of BPF_PROG_ATTACH, without addresses.
    unsafe { bpf(ATTACH, &mut attributes) }.map_err(refused)?;
    for program in earlier {
        let mut attributes = Attach {
            target: number(&group),
            program: number(&program),
            attach_type: AT_CGROUP_DEVICE,
            ..Attach::default()
        };
        // SAFETY: `Attach` has the layout of BPF_PROG_DETACH, without addresses.
        unsafe { bpf(DETACH, &mut attributes) }.map_err(refused)?;
    }
    Ok(())
}

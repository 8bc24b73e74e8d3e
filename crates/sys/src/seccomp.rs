//! Filters of system calls (seccomp(2)) and the promise that goes with them.

use nix::libc;

use crate::{Error, Result};

/// An instruction of a filter (linux/filter.h).
pub type Instruction = libc::sock_filter;

/// Makes an instruction.
pub fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Adds a filter to those of the calling thread. It stays over execve(2), and nothing takes it away. Takes
/// `CAP_SYS_ADMIN`, or [`forbid_new_privileges`] before.
pub fn load(program: &[Instruction]) -> Result<()> {
    let failed = |source| Error::Call { operation: "load a filter of system calls", source };
    let length = u16::try_from(program.len())
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, error)))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` names as many live instructions as its length says; the kernel copies them and writes nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(&program))
    };
    if result == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// Has no program that the calling thread executes from now on gain privileges: set-user-id bits and capabilities of
/// files count for nothing (`PR_SET_NO_NEW_PRIVS`).
pub fn forbid_new_privileges() -> Result<()> {
    rustix::thread::set_no_new_privs(true).map_err(Error::call("forbid new privileges"))
}

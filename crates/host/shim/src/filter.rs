//! The system calls that a confined task may make: the default list of container engines.
//!
//! The list is that of the default profile of container engines (`seccomp/default.json` of the repository
//! moby/profiles on GitHub). Calls that are not in it return `EPERM`; some are allowed only to tasks with a
//! capability. Calls that are newer than the list return `ENOSYS`, as a kernel without them does, so that programs
//! fall back to older calls.

use crate::Result;
use caravan_sys::caps::CapSet;
use caravan_sys::seccomp::{self, Condition, Instruction, Policy, Rule, Verdict};
use nix::libc;
use std::collections::BTreeMap;

/// The newest call that the list covers (`removexattrat`). From 424 on, the numbers are the same on all
/// architectures.
const NEWEST: u32 = 466;

/// The flags of clone(2) that create namespaces.
const NEW_NAMESPACES: u32 = 0x7E02_0000;

/// Calls that every task may make.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_adjtimex,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fanotify_mark,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_mremap,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_name_to_handle_at,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pselect6,
    libc::SYS_ptrace,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_remap_file_pages,
    libc::SYS_removexattr,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_setuid,
    libc::SYS_setxattr,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that every task may make, by numbers that are the same on all architectures.
const ALLOWED_NEWER: &[libc::c_long] = &[
    424, // pidfd_send_signal
    434, // pidfd_open
    436, // close_range
    437, // openat2
    439, // faccessat2
    441, // epoll_pwait2
    444, // landlock_create_ruleset
    445, // landlock_add_rule
    446, // landlock_restrict_self
    447, // memfd_secret
    448, // process_mrelease
    449, // futex_waitv
    451, // cachestat
    452, // fchmodat2
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    457, // statmount
    458, // listmount
    462, // mseal
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
];

/// Calls that every task may make on this architecture; other architectures have newer calls for the same purpose.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_ctl_old,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_wait_old,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_get_thread_area,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_inotify_init,
    333, // io_pgetevents
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_modify_ldt,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_set_thread_area,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    335, // uretprobe
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[libc::c_long] = &[
    292, // io_pgetevents
];

/// Calls that only tasks with a capability may make, by the capability's name.
const WITH_CAPABILITY: &[(&str, &[libc::c_long])] = &[
    ("dac_read_search", &[libc::SYS_open_by_handle_at]),
    (
        "sys_admin",
        &[
            libc::SYS_bpf,
            libc::SYS_clone,
            libc::SYS_fanotify_init,
            libc::SYS_lookup_dcookie,
            libc::SYS_mount,
            libc::SYS_perf_event_open,
            libc::SYS_quotactl,
            libc::SYS_setdomainname,
            libc::SYS_sethostname,
            libc::SYS_setns,
            libc::SYS_syslog,
            libc::SYS_umount2,
            libc::SYS_unshare,
            428, // open_tree
            429, // move_mount
            430, // fsopen
            431, // fsconfig
            432, // fsmount
            433, // fspick
            435, // clone3
            442, // mount_setattr
            443, // quotactl_fd
            459, // lsm_get_self_attr
            460, // lsm_set_self_attr
            461, // lsm_list_modules
        ],
    ),
    ("sys_boot", &[libc::SYS_reboot]),
    ("sys_chroot", &[libc::SYS_chroot]),
    ("sys_module", &[libc::SYS_delete_module, libc::SYS_init_module, libc::SYS_finit_module]),
    ("sys_pacct", &[libc::SYS_acct]),
    ("sys_ptrace", &[libc::SYS_kcmp, 438 /* pidfd_getfd */, 440 /* process_madvise */]),
    ("sys_time", &[libc::SYS_settimeofday, libc::SYS_clock_settime]),
    ("sys_tty_config", &[libc::SYS_vhangup]),
    (
        "sys_nice",
        &[
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
            libc::SYS_set_mempolicy,
            450, // set_mempolicy_home_node
        ],
    ),
    ("syslog", &[libc::SYS_syslog]),
    ("bpf", &[libc::SYS_bpf]),
    ("perfmon", &[libc::SYS_perf_event_open]),
    #[cfg(target_arch = "x86_64")]
    ("sys_rawio", &[libc::SYS_iopl, libc::SYS_ioperm]),
];

/// Ranges of allowed socket families: all except some that programs rarely need (DECnet, Econet, ATM circuits, IrDA,
/// WANPIPE, ISDN, CAIF, the kernel's crypto API, virtual machines).
const FAMILIES: [(u32, u32); 8] =
    [(0, 11), (13, 18), (21, 22), (24, 24), (26, 33), (35, 36), (39, 39), (41, 45)];

/// Allowed values of personality(2): `PER_LINUX`, `PER_LINUX32`, both with `UNAME26`, and the query of the present
/// one.
const PERSONALITIES: [(u32, u32); 5] =
    [(0, 0), (0x8, 0x8), (0x2_0000, 0x2_0000), (0x2_0008, 0x2_0008), (u32::MAX, u32::MAX)];

/// Number of clone3(2). Its flags are in memory, which a filter cannot read.
const CLONE3: libc::c_long = 435;

/// A task's compiled filter of system calls.
#[derive(Debug)]
pub(crate) struct Filter(Vec<Instruction>);

impl Filter {
    /// Compiles the filter of a task that may have these capabilities.
    pub(crate) fn new(capabilities: CapSet) -> Self {
        Self(policy(capabilities).compile())
    }

    /// Applies the filter to the calling process and to all programs that it executes.
    pub(crate) fn load(&self) -> Result<()> {
        Ok(seccomp::load(&self.0)?)
    }
}

fn policy(capabilities: CapSet) -> Policy {
    let refused = Verdict::Errno(errno(libc::EPERM));
    let unknown = Verdict::Errno(errno(libc::ENOSYS));
    let mut rules = BTreeMap::new();
    let mut rule = |call: libc::c_long, rule: Rule| {
        // Call numbers are small and not negative.
        if let Ok(number) = u32::try_from(call) {
            rules.insert(number, rule);
        }
    };
    rule(libc::SYS_socket, Rule::If(Condition::In(FAMILIES.to_vec()), refused));
    rule(libc::SYS_personality, Rule::If(Condition::In(PERSONALITIES.to_vec()), refused));
    rule(libc::SYS_clone, Rule::If(Condition::Without(NEW_NAMESPACES), refused));
    // Programs fall back to clone(2), whose flags the filter can check.
    rule(CLONE3, Rule::Always(unknown));
    let may_have = |name: &str| name.parse().is_ok_and(|capability| capabilities.contains(capability));
    let with_capability = WITH_CAPABILITY.iter().filter(|(name, _)| may_have(name));
    let always = [ALLOWED, ALLOWED_NEWER, ALLOWED_HERE].into_iter().flatten();
    for call in always.chain(with_capability.flat_map(|(_, calls)| *calls)) {
        rule(*call, Rule::Always(Verdict::Allow));
    }
    Policy { rules, other: refused, newest: NEWEST, newer: unknown, foreign: Verdict::Kill }
}

fn errno(number: i32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> CapSet {
        let mut set = CapSet::EMPTY;
        for name in names {
            set.insert(name.parse().unwrap());
        }
        set
    }

    const ALLOW: Verdict = Verdict::Allow;
    const EPERM: Verdict = Verdict::Errno(1);
    const ENOSYS: Verdict = Verdict::Errno(38);

    fn answer(capabilities: CapSet, call: libc::c_long, argument: u32) -> Verdict {
        let number = u32::try_from(call).unwrap();
        seccomp::evaluate(&Filter::new(capabilities).0, seccomp::ARCH, number, argument).unwrap()
    }

    #[test]
    fn common_calls_are_allowed_and_those_for_the_machine_refused() {
        let usual = set(&["chown", "sys_chroot", "setuid"]);
        for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_ptrace, libc::SYS_chroot, 436, 449, 466] {
            assert_eq!(answer(usual, number, 0), ALLOW, "{number}");
        }
        let refused = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_kexec_load,
            libc::SYS_init_module,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_pivot_root,
            libc::SYS_settimeofday,
            libc::SYS_open_by_handle_at,
            libc::SYS_mbind,
            // io_uring, which the list of container engines refuses too.
            425,
            426,
            427,
        ];
        for number in refused {
            assert_eq!(answer(usual, number, 0), EPERM, "{number}");
        }
    }

    #[test]
    fn a_capability_allows_what_goes_with_it() {
        let cases = [
            ("sys_admin", libc::SYS_mount),
            ("sys_admin", libc::SYS_unshare),
            ("sys_admin", 435),
            ("sys_time", libc::SYS_settimeofday),
            ("sys_boot", libc::SYS_reboot),
            ("sys_module", libc::SYS_init_module),
            ("sys_nice", libc::SYS_mbind),
            ("bpf", libc::SYS_bpf),
            ("perfmon", libc::SYS_perf_event_open),
            ("dac_read_search", libc::SYS_open_by_handle_at),
        ];
        for (name, number) in cases {
            assert_ne!(answer(CapSet::EMPTY, number, 0), ALLOW, "{name}");
            assert_eq!(answer(set(&[name]), number, 0), ALLOW, "{name}");
        }
        for (name, _) in WITH_CAPABILITY {
            assert!(name.parse::<caravan_sys::caps::Capability>().is_ok(), "{name}");
        }
    }

    #[test]
    fn arguments_count() {
        let (none, admin) = (CapSet::EMPTY, set(&["sys_admin"]));
        for (flags, expected) in [(0x0001_1200, ALLOW), (0x1000_0000, EPERM), (0x0002_0011, EPERM)] {
            assert_eq!(answer(none, libc::SYS_clone, flags), expected, "{flags:#x}");
            assert_eq!(answer(admin, libc::SYS_clone, flags), ALLOW, "{flags:#x}");
        }
        // Unix, IPv4, IPv6, netlink, packet; then the kernel's crypto API, virtual machines, and a family that does
        // not exist.
        for (family, expected) in [
            (1, ALLOW),
            (2, ALLOW),
            (10, ALLOW),
            (16, ALLOW),
            (17, ALLOW),
            (38, EPERM),
            (40, EPERM),
            (99, EPERM),
        ] {
            assert_eq!(answer(none, libc::SYS_socket, family), expected, "{family}");
        }
        for (value, expected) in [(0, ALLOW), (0xffff_ffff, ALLOW), (0x0040_0000, EPERM)] {
            assert_eq!(answer(none, libc::SYS_personality, value), expected, "{value:#x}");
        }
    }

    #[test]
    fn what_the_list_does_not_know_is_no_call_of_this_kernel() {
        for number in [467, 500, 100_000, 0x4000_0000] {
            assert_eq!(answer(CapSet::ALL, number, 0), ENOSYS, "{number}");
        }
        assert_eq!(answer(CapSet::EMPTY, 435, 0), ENOSYS, "clone3");
    }

    #[test]
    fn calls_of_another_architecture_end_the_process() {
        let i386 = 0x4000_0003;
        assert_eq!(seccomp::evaluate(&Filter::new(CapSet::ALL).0, i386, 1, 0), Some(Verdict::Kill));
    }

    /// The time for loading grows with the filter's length, and every start of a task waits for it.
    #[test]
    fn the_filter_is_short() {
        let instructions = Filter::new(CapSet::EMPTY).0.len();
        assert!(instructions < 300, "{instructions}");
    }
}

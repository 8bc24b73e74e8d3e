//! The kernel: mounts and their identity, propagation, cgroups v1 and v2, pidfd, atomic files. The only crate with unsafe code.

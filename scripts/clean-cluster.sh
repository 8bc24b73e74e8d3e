#!/usr/bin/env bash
# Ends what cluster.sh left running: jobs, volume, plugin, agents, network namespaces, in this order. Removes only what
# cluster.sh wrote down as made.
set -euo pipefail
# shellcheck source=scripts/cluster-common.sh
. "$(dirname "$0")/cluster-common.sh"
export PATH="$PATH:/usr/sbin:/sbin"

if [ ! -e "$dir/made" ]; then
    say "There is no cluster of make cluster in $dir."
    # A directory that cluster.sh had no time to use.
    if [ -d "$dir" ]; then rmdir "$dir"; fi
    exit 0
fi

# What cannot be undone by the book is ended with the agents; that is said, and is no reason to stop here.
try() { step "$@" || say "  (that failed; going on)"; }
known() { "$caravan" "$@" >/dev/null 2>&1; }
gone() { ! known plugin status hostpath; }
# mounts : what is mounted below the directory of the cluster, the innermost first (proc(5), mountinfo).
mounts() { awk -v below="$dir/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }
# An agent binds these two directories onto themselves, for the propagation of mounts.
is_own() { case ${1#"$dir"/client-} in [0-9]/client | [0-9]/alloc) true ;; *) false ;; esac }
unmounted() {
    local mount left=0
    for mount in $(mounts); do
        if ! is_own "$mount"; then
            say "$mount"
            left=1
        fi
    done
    return "$left"
}

for host in server-1 server-2 server-3; do
    use "$host"
    if agent_alive "$host" && known node status; then break; fi
done
if known node status; then
    if known job status writer; then try job stop -purge writer; fi
    if known volume status data; then
        (wait_for 60 "the volume to be given back and deleted" "$caravan" volume delete data) || say "  (going on)"
    fi
    if known job status hostpath; then
        try job stop -purge hostpath
        # Its tasks outlive an agent that ends first.
        (wait_for 60 "the plugin to end" gone) || say "  (going on)"
    fi
    # The directories of ended allocations have mounts (their secrets), which go with their collection.
    try system gc
    (wait_for 60 "ended allocations to be removed" unmounted) || say "  (going on)"
else
    say "No server answers; ending the processes only."
fi

# end HOST... : ends agents, the first ones first.
end() {
    local host tick
    for host in "$@"; do
        if agent_alive "$host"; then
            say "  ending $host (process $pid)"
            kill -TERM "$pid"
        fi
    done
    for ((tick = 0; tick < 300; tick++)); do
        for host in "$@"; do
            if agent_alive "$host"; then
                sleep 0.1
                continue 2
            fi
        done
        return
    done
    for host in "$@"; do
        if agent_alive "$host"; then
            say "  $host did not end within 30 s; killing process $pid. Its tasks may still run."
            kill -KILL "$pid"
        fi
    done
}
say ""
say "==> Ending the agents"
end client-1 client-2
end server-1 server-2 server-3

while read -r kind object; do
    case $kind in
    namespace)
        # The kernel removes the interfaces of a deleted namespace later, and a new cluster needs their names.
        port=$(port_of "${object#"$name-"}")
        if [ -e "/sys/class/net/$port" ]; then ip link delete "$port"; fi
        if [ -e "/run/netns/$object" ]; then ip netns delete "$object"; fi
        ;;
    bridge) if [ -e "/sys/class/net/$object" ]; then ip link delete "$object"; fi ;;
    esac
done <"$dir/made"

for mount in $(mounts); do
    # Secrets of allocations that were not collected are in memory.
    if is_own "$mount" || [ "$(stat -f -c %T "$mount")" = tmpfs ]; then umount "$mount"; fi
done
if [ -n "$(mounts)" ]; then
    say "This is still mounted below $dir: unmount it, then run make clean-cluster again." >&2
    mounts >&2
    exit 1
fi
rm -rf --one-file-system "$dir"
say "Done."

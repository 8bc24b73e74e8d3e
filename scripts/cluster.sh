#!/usr/bin/env bash
# Three servers and two clients, each in a network namespace of its own, from the configurations in examples/cluster:
# runs a CSI plugin, a volume and a job that writes into it, kills the leader, and goes on. Leaves all of it running.
#
#   CARAVAN_CLUSTER_NET=10.77.0         the first three numbers of the hosts' addresses
#   CARAVAN_CLUSTER_NAME=cvcluster      the prefix of namespaces and interfaces (at most 12 characters)
#   CARAVAN_CLUSTER_DIR=.cluster        data, logs and configurations
#   CARAVAN_PROFILE=dev|release         how the program is built (dev); CARAVAN_BIN names a program to use instead
set -euo pipefail
# shellcheck source=scripts/cluster-common.sh
. "$(dirname "$0")/cluster-common.sh"
export PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin:/usr/sbin:/sbin"
hosts="server-1 server-2 server-3 client-1 client-2"

if [ "$(id -u)" -ne 0 ]; then
    say "cluster: network namespaces and mounts take root: run it as root, for example with" >&2
    # shellcheck disable=SC2016 # $PATH is for the reader's shell
    say '    sudo --preserve-env=HOME env "PATH=$PATH" make cluster' >&2
    exit 1
fi
if [ -e "$dir" ]; then
    say "cluster: $dir exists, so an earlier cluster still runs or was not removed: make clean-cluster ends it." >&2
    exit 1
fi
for program in ip nsenter; do
    if ! command -v "$program" >/dev/null; then
        say "cluster: $program is missing: install iproute2 and util-linux." >&2
        exit 1
    fi
done
if [ -n "$(ip -o -4 addr show to "$net.0/24")$(ip -o -4 route show root "$net.0/24")" ]; then
    say "cluster: this machine uses addresses of $net.0/24 already. Choose other ones:" >&2
    say "    CARAVAN_CLUSTER_NET=10.78.0 make cluster" >&2
    exit 1
fi

if [ -z "${CARAVAN_BIN:-}" ]; then
    say "==> Building the program (the first time takes some minutes)"
    scripts/tools.sh build
    cargo build -p caravan --profile "$profile" --locked
fi

say ""
say "==> Three servers and two clients, each on a host of its own"
mkdir -m 700 "$dir"
# What is made is written down first, so that clean-cluster.sh removes this and nothing else.
printf 'bridge %s0\n' "$name" >>"$dir/made"
ip link add "${name}0" type bridge
ip addr add "$net.1/24" dev "${name}0"
ip link set "${name}0" up
for host in $hosts; do
    space=$name-$host
    port=$(port_of "$host")
    printf 'namespace %s\n' "$space" >>"$dir/made"
    ip netns add "$space"
    ip link add "$port" type veth peer name eth0 netns "$space"
    ip link set "$port" master "${name}0" up
    ip -n "$space" link set lo up
    ip -n "$space" addr add "$(address "$host")/24" dev eth0
    ip -n "$space" link set eth0 up
done

# start HOST : starts the agent of a host.
start() {
    local host=$1 example=examples/cluster/$1.hcl
    if [ "${host%-*}" = client ]; then example=examples/cluster/client.hcl; fi
    # The addresses of documentation become those of the hosts.
    sed -e "s/192\\.0\\.2\\.21/$(address "$host")/" -e "s/192\\.0\\.2\\./$net./g" -e "s/client-1/$host/" \
        -e "s|/var/lib/caravan|$dir/$host|" "$example" >"$dir/$host.hcl"
    # A session of its own: ending this script, or ^C, must not end the agent. Shells start what they put into the
    # background with SIGINT ignored, which its tasks would inherit.
    setsid env --default-signal=INT,QUIT nsenter "--net=/run/netns/$name-$host" \
        "$caravan" agent -config "$dir/$host.hcl" </dev/null >>"$dir/$host.log" 2>&1 &
    printf '%s %s\n' "$!" "$(start_time "$!")" >"$dir/$host.pid"
    say "  $host at $(address "$host"): process $!, log in $dir/$host.log"
    # The shell does not report its end.
    disown "$!"
}
for host in $hosts; do start "$host"; done
use server-1
wait_for 60 "the servers to found a cluster" prints 1 'alive +true ' server members
wait_for 60 "all servers to be members" prints 3 ' alive ' server members
wait_for 60 "both clients to be ready" prints 2 '[[:space:]]ready[[:space:]]*$' node status
step server members

say ""
say "==> A volume, and a job that writes into it"
step job run -detach -var "args=[\"--state-dir=$dir/volumes\"]" examples/hostpath-plugin.nomad.hcl
wait_for 60 "the plugin to be healthy on both clients" prints 1 '"NodesHealthy": *2' plugin status -json hostpath
step volume create examples/volume.hcl
step job run -detach examples/writer.nomad.hcl
wait_for 60 "the writer to run" prints 1 '[[:space:]]run[[:space:]]+running[[:space:]]' job status writer
alloc=$("$caravan" job status writer |
    awk '/^Allocations/ { table = 1; next } table && NF && $1 != "ID" { print $1; exit }')
[ -n "$alloc" ] || fail "job status shows no allocation of the writer"
wait_for 30 "its first lines" prints 1 'written by allocation' alloc logs "$alloc"

say ""
say "==> Killing the leader"
leader=$("$caravan" server members | awk '$5 == "true" { sub(/\..*/, "", $1); print $1 }')
[ -n "$leader" ] || fail "server members shows no leader"
agent_alive "$leader" || fail "the agent of $leader ended"
say "  $leader leads; its process $pid gets SIGKILL"
kill -KILL "$pid"
for other in server-1 server-2 server-3; do
    if [ "$other" != "$leader" ]; then use "$other"; fi
done
lines=$("$caravan" alloc logs "$alloc" 2>/dev/null | wc -l || true)
wait_for 30 "another leader" prints 1 'alive +true ' server members
step var put -force app/after "leader=killed"
wait_for 60 "the killed server to be shown as failed" prints 1 "^$leader.* failed " server members
step server members
more() { [ "$("$caravan" alloc logs "$alloc" | wc -l)" -gt "$lines" ]; }
wait_for 30 "the writer to go on" more
step job status writer

say ""
say "==> The killed server returns"
start "$leader"
wait_for 60 "three servers that vote" prints 3 ' true +3$' operator raft list-peers
wait_for 60 "a healthy cluster" "$caravan" operator autopilot health
step operator raft list-peers

if [ -z "${CARAVAN_BIN:-}" ] && ! command -v caravan >/dev/null 2>&1; then shown=${caravan#"$PWD"/}; else shown=caravan; fi
cat <<EOT

==> Three servers and two clients are running. In each new shell first:
  export CARAVAN_ADDR=$CARAVAN_ADDR
Try next:
  $shown server members -verbose
  $shown operator autopilot health
  $shown alloc logs -f $alloc
  $shown operator snapshot save backup.snap
End everything:
  make clean-cluster
EOT

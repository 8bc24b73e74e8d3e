# Shared by cluster.sh and clean-cluster.sh: where the cluster is, how its hosts are named, how the scripts wait.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

dir=${CARAVAN_CLUSTER_DIR:-$PWD/.cluster}
name=${CARAVAN_CLUSTER_NAME:-cvcluster}
net=${CARAVAN_CLUSTER_NET:-10.77.0}
profile=${CARAVAN_PROFILE:-dev}
case $profile in
dev) folder=debug ;;
*) folder=$profile ;;
esac
caravan=${CARAVAN_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/$folder/caravan}

# The scripts talk to their own agents, whatever the shell is set up for.
unset NOMAD_ADDR NOMAD_NAMESPACE NOMAD_REGION NOMAD_TOKEN CARAVAN_NAMESPACE CARAVAN_REGION CARAVAN_TOKEN

say() { printf '%s\n' "$*"; }

# address HOST : the address of a host.
address() {
    case $1 in
    server-*) printf '%s.1%s' "$net" "${1#server-}" ;;
    client-*) printf '%s.2%s' "$net" "${1#client-}" ;;
    esac
}

# port_of HOST : the end of a host's cable at the bridge.
port_of() { printf '%s-%s%s' "$name" "${1:0:1}" "${1##*-}"; }

# use HOST : sends the commands that follow to the agent on a host.
use() {
    CARAVAN_ADDR=http://$(address "$1"):4646
    export CARAVAN_ADDR
}

# step ARGUMENT... : shows a command and runs it.
step() {
    printf '\n$ caravan %s\n' "$*"
    "$caravan" "$@"
}

# start_time PID : when the process started; tells it from a later one with its number (proc(5), field 22).
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '{ print $20 }'; }

# agent_alive HOST : whether the agent that cluster.sh started on a host still runs; its number is in $pid then.
agent_alive() {
    local started
    [ -f "$dir/$1.pid" ] || return 1
    read -r pid started <"$dir/$1.pid"
    [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ]
}

fail() {
    printf '\ncluster: %s\n' "$1" >&2
    local file
    for file in "$dir"/*.log; do
        if [ -s "$file" ]; then
            printf '\n--- end of %s\n' "$file" >&2
            tail -n 15 "$file" >&2
        fi
    done
    if [ -d "$dir" ]; then printf '\nmake clean-cluster ends all of it.\n' >&2; fi
    exit 1
}

# wait_for SECONDS WHAT COMMAND... : repeats the command until it succeeds, showing what is waited for.
wait_for() {
    local limit=$1 what=$2 begin=$SECONDS shown=0
    shift 2
    printf '  waiting for %s ' "$what"
    until "$@" >"$dir/wait.out" 2>&1; do
        if [ $((SECONDS - begin)) -ge "$limit" ]; then
            printf '\n'
            cat "$dir/wait.out" >&2
            fail "no $what after $limit s"
        fi
        if [ $((SECONDS - begin)) -gt "$shown" ]; then
            shown=$((SECONDS - begin))
            printf '.'
        fi
        sleep 0.1
    done
    printf ' done\n'
}

# prints COUNT PATTERN ARGUMENT... : whether a verb succeeds and prints that many lines that match.
prints() {
    local count=$1 pattern=$2
    shift 2
    "$caravan" "$@" >"$dir/prints.out" || return 1
    if [ "$(grep -Ec -- "$pattern" "$dir/prints.out")" -lt "$count" ]; then
        cat "$dir/prints.out"
        return 1
    fi
}

# Shared by demo.sh and clean-demo.sh: where the demonstration is, how it waits, how it fails.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

demo=$PWD/.demo
port=${CARAVAN_DEMO_PORT:-4646}
log=$demo/agent.log
profile=${CARAVAN_PROFILE:-dev}
case $profile in
dev) folder=debug ;;
*) folder=$profile ;;
esac
caravan=${CARGO_TARGET_DIR:-$PWD/target}/$folder/caravan

# The demonstration talks to its own agent, whatever the shell is set up for.
unset NOMAD_ADDR NOMAD_NAMESPACE NOMAD_REGION NOMAD_TOKEN CARAVAN_NAMESPACE CARAVAN_REGION CARAVAN_TOKEN
export CARAVAN_ADDR=http://127.0.0.1:$port

say() { printf '%s\n' "$*"; }

# step ARGUMENT... : shows a command and runs it.
step() {
    printf '\n$ caravan %s\n' "$*"
    "$caravan" "$@"
}

# start_time PID : when the process started; tells it from a later one with its number (proc(5), field 22).
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '{ print $20 }'; }

# agent_alive : whether the agent that the demonstration started still runs; its number is in $pid then.
agent_alive() {
    local started
    [ -f "$demo/agent.pid" ] || return 1
    read -r pid started <"$demo/agent.pid"
    [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ]
}

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    if [ -s "$log" ]; then
        printf '\n--- end of %s\n' "$log" >&2
        tail -n 30 "$log" >&2
    fi
    if agent_alive; then printf '\nThe agent (process %s) still runs; make clean-demo stops it.\n' "$pid" >&2; fi
    exit 1
}

# wait_for SECONDS WHAT COMMAND... : repeats the command until it succeeds, showing what is waited for.
wait_for() {
    local limit=$1 what=$2 begin=$SECONDS shown=0
    shift 2
    printf '  waiting for %s ' "$what"
    while true; do
        if ! agent_alive; then
            printf '\n'
            fail "the agent ended while waiting for $what"
        fi
        if "$@" >"$demo/wait.out" 2>&1; then break; fi
        if [ $((SECONDS - begin)) -ge "$limit" ]; then
            printf '\n'
            cat "$demo/wait.out" >&2
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

# prints PATTERN ARGUMENT... : whether a verb succeeds and prints a line that matches.
prints() {
    local pattern=$1
    shift
    "$caravan" "$@" >"$demo/prints.out" || return 1
    if ! grep -Eq -- "$pattern" "$demo/prints.out"; then
        cat "$demo/prints.out"
        return 1
    fi
}

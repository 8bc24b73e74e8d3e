#!/usr/bin/env bash
# Stops what demo.sh left running: jobs, volume, plugin, agent, in this order.
set -euo pipefail
# shellcheck source=scripts/demo-common.sh
. "$(dirname "$0")/demo-common.sh"

if ! agent_alive; then
    say "No agent of a demonstration is running."
    rm -rf "$demo"
    exit 0
fi
CARAVAN_ADDR=$(cat "$demo/address")

# What cannot be undone by the book is ended with the agent; that is said, and is no reason to stop here.
try() { step "$@" || say "  (that failed; going on)"; }
known() { "$caravan" "$@" >/dev/null 2>&1; }
gone() { ! agent_alive; }

if known node status; then
    for job in reader writer; do
        if known job status "$job"; then try job stop -purge "$job"; fi
    done
    if known volume status data; then
        (wait_for 60 "the volume to be given back and deleted" "$caravan" volume delete data) || say "  (going on)"
    fi
    if known job status hostpath; then try job stop -purge hostpath; fi
else
    say "The agent does not answer at $CARAVAN_ADDR; ending its process only."
fi

say ""
say "==> Stopping the agent (process $pid)"
kill -TERM "$pid"
for ((tick = 0; tick < 300; tick++)); do
    if gone; then break; fi
    sleep 0.1
done
if ! gone; then
    say "It did not end within 30 s; killing it."
    kill -KILL "$pid"
    say "Its tasks may still run, and what it mounted is listed in /proc/self/mountinfo. Its log: $log"
    exit 1
fi
rm -rf "$demo"
say "Done."

#!/usr/bin/env bash
# The main job, end to end: starts an agent, runs a CSI plugin as a job, makes a volume, runs a job that
# writes into it, and shows what was written. Leaves the agent running.
#
#   CARAVAN_DEMO_DRIVER=raw_exec|exec   driver of the plugin and of the writer (raw_exec)
#   CARAVAN_DEMO_PORT=4646              port of the API; the next one is for calls between agents
#   CARAVAN_PROFILE=dev|release         how the program is built (dev)
set -euo pipefail
# shellcheck source=scripts/demo-common.sh
. "$(dirname "$0")/demo-common.sh"
export PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
driver=${CARAVAN_DEMO_DRIVER:-raw_exec}

if [ "$(id -u)" -ne 0 ]; then
    say "demo: the agent mounts and makes control groups, which takes root: run it as root, for example with" >&2
    # shellcheck disable=SC2016 # $PATH is for the reader's shell
    say '    sudo --preserve-env=HOME env "PATH=$PATH" make demo' >&2
    exit 1
fi

if agent_alive; then
    say "demo: the agent of an earlier demonstration still runs (process $pid): make clean-demo stops it." >&2
    exit 1
fi
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for taken in "$port" "$((port + 1))"; do
    if answers "$taken"; then
        say "demo: something answers at 127.0.0.1:$taken already, perhaps an agent." >&2
        say "Stop it, or choose another port: CARAVAN_DEMO_PORT=14646 make demo" >&2
        exit 1
    fi
done

say "==> Building the program (the first time takes some minutes)"
scripts/tools.sh build
cargo build -p caravan --profile "$profile" --locked

say ""
say "==> Starting an agent: server and client in one, its state in memory"
rm -rf "$demo"
mkdir -m 700 "$demo"
options=(-dev)
if [ "$port" != 4646 ]; then
    printf 'ports {\n  http = %s\n  rpc  = %s\n}\n' "$port" "$((port + 1))" >"$demo/agent.hcl"
    options+=(-config "$demo/agent.hcl")
fi
say "\$ caravan agent ${options[*]}"
# A session of its own: ending this script, or ^C, must not end the agent. Shells start what they put into the
# background with SIGINT ignored, which its tasks would inherit.
setsid env --default-signal=INT,QUIT "$caravan" agent "${options[@]}" </dev/null >"$log" 2>&1 &
pid=$!
printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$demo/agent.pid"
say "$CARAVAN_ADDR" >"$demo/address"
say "  process $pid, log in $log"
wait_for 60 "the node to be ready" prints '[[:space:]]ready[[:space:]]*$' node status

say ""
say "==> A CSI plugin, run as a job ($driver)"
step job run -var "driver=$driver" examples/hostpath-plugin.nomad.hcl || fail "the plugin's job was not accepted"
plugin_healthy() {
    prints '"ControllersHealthy": *[1-9]' plugin status -json hostpath &&
        prints '"NodesHealthy": *[1-9]' plugin status -json hostpath
}
wait_for 60 "the plugin to be healthy" plugin_healthy
step plugin status hostpath || fail "the plugin is not known"

say ""
say "==> A volume, made by the plugin"
step volume create examples/volume.hcl || fail "the volume was not made"

say ""
say "==> A job that writes into the volume ($driver)"
step job run -var "driver=$driver" examples/writer.nomad.hcl || fail "the writer's job was not accepted"
wait_for 60 "the writer to run" prints '[[:space:]]run[[:space:]]+running[[:space:]]' job status writer
# The first column of the first row under "Allocations".
alloc=$("$caravan" job status writer |
    awk '/^Allocations/ { table = 1; next } table && NF && $1 != "ID" { print $1; exit }')
[ -n "$alloc" ] || fail "job status shows no allocation of the writer"
wait_for 30 "its first lines" prints 'written by allocation' alloc logs "$alloc"

say ""
say "==> What was written into the volume"
step alloc logs "$alloc" || fail "the writer's output cannot be read"
step volume status data || fail "the volume is not known"

if command -v caravan >/dev/null 2>&1; then name=caravan; else name=${caravan#"$PWD"/}; fi
say ""
say "==> The agent is still running (process $pid, log in $log)"
say "    Web page:  $CARAVAN_ADDR/ui/"
if [ "$port" != 4646 ]; then say "In each new shell first:  export CARAVAN_ADDR=$CARAVAN_ADDR"; fi
cat <<EOT
Try next:
  $name alloc logs -f $alloc
  $name alloc status $alloc
  $name job run -detach -var driver=$driver examples/reader.nomad.hcl
  $name job status reader          # says that it waits for the volume, and who holds it
  $name job stop writer            # hands the volume over to the reader
  $name alloc logs -job reader     # what the writer left
Stop everything:
  make clean-demo                  # or: kill $pid
EOT

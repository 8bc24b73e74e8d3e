#!/usr/bin/env bash
# Writes the pictures of README.md: starts the demonstration on a port of its own, and takes the pages in Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARAVAN_DEMO_PORT=${CARAVAN_DEMO_PORT:-14646}
address=http://127.0.0.1:$CARAVAN_DEMO_PORT

scripts/demo.sh
trap scripts/clean-demo.sh EXIT
CARAVAN_ADDR=$address "${CARGO_TARGET_DIR:-target}/debug/caravan" job run -detach examples/reader.nomad.hcl
(cd ui && npm ci --no-audit --no-fund)
mkdir -p docs/pictures
node ui/e2e/shots.mjs "$address" docs/pictures jobs/reader@default=job storage=storage

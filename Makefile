# Everything a person does with this repository, by name. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# cargo is its own scheduler.
.NOTPARALLEL:

CARGO ?= cargo
# Where rustup and the Go archive install, for shells that have not been told.
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CURDIR)/.tools/node/bin:$(PATH):$(CARGO_HOME)/bin:/usr/local/go/bin
CSI_SANITY ?= $(CURDIR)/.tools/bin/csi-sanity
export CSI_SANITY
XTASK := $(or $(CARGO_TARGET_DIR),target)/debug/xtask

# The power cuts of `make test-vm`.
SCHEDULES ?= 200

.PHONY: help demo clean-demo cluster clean-cluster test test-vm build release package package-static lint deny tools ui ui-dev screenshots

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, start an agent, run a job that writes into a CSI volume (needs root)
	@scripts/demo.sh

clean-demo: ## stop what `make demo` left running and remove its volume
	@scripts/clean-demo.sh

cluster: ## build, start three servers and two clients in network namespaces, kill the leader, go on (needs root)
	@scripts/cluster.sh

clean-cluster: ## end what `make cluster` left running and remove what it made
	@scripts/clean-cluster.sh

test: ## build the program and run all tests (needs root)
	@scripts/tools.sh test
	$(CARGO) build --workspace --bin xtask --locked
	$(XTASK) test

test-vm: ## run all stories in virtual machines (SCHEDULES=200 power cuts)
	@scripts/tools.sh test-vm
	$(CARGO) build -p caravan --locked
	CARAVAN_VM_SCHEDULES=$(SCHEDULES) $(CARGO) xtask vm test

build: ## build the program for development
	@scripts/tools.sh build
	$(CARGO) build -p caravan --locked

release: ## build the program for use
	@scripts/tools.sh build
	$(CARGO) build -p caravan --release --locked

package: release ## write the Debian package and the tarball into target/package
	$(CARGO) run --quiet --locked -p xtask -- package --program $(or $(CARGO_TARGET_DIR),target)/release/caravan

# The target of rustc whose programs need no shared libraries.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-musl

package-static: ## write a package, a tarball and a container image whose program needs no libraries
	@scripts/tools.sh package-static
	$(CARGO) build -p caravan --release --locked --target $(STATIC_TARGET)
	$(CARGO) run --quiet --locked -p xtask -- package --program $(or $(CARGO_TARGET_DIR),target)/$(STATIC_TARGET)/release/caravan

lint: ## check format and lints
	@scripts/tools.sh lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: ## check licences and sources of dependencies (needs cargo-deny)
	$(CARGO) deny --locked check licenses sources bans

ui: ## build the web page from the folder ui (needs Node)
	@scripts/tools.sh build ui
	$(CARGO) run --quiet --locked -p xtask -- ui

screenshots: ## write the pictures of README.md, from an agent with the jobs of the demonstration
	@scripts/tools.sh test
	@scripts/screenshots.sh

ui-dev: ## serve the web page while it is changed, with the data of an agent (CARAVAN_ADDR)
	@scripts/tools.sh ui
	cd ui && npm ci --no-audit --no-fund && npm run dev

tools: ## check for everything that building and testing takes; install what can be installed
	@scripts/tools.sh build lint test

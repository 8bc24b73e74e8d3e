# Everything a person does with this repository, by name. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# cargo is its own scheduler.
.NOTPARALLEL:

CARGO ?= cargo
# Where rustup and the Go archive install, for shells that have not been told.
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(PATH):$(CARGO_HOME)/bin:/usr/local/go/bin
CSI_SANITY ?= $(CURDIR)/.tools/bin/csi-sanity
export CSI_SANITY

.PHONY: help demo clean-demo test build release lint deny tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, start an agent, run a job that writes into a CSI volume (needs root)
	@scripts/demo.sh

clean-demo: ## stop what `make demo` left running and remove its volume
	@scripts/clean-demo.sh

test: ## build the program and run all tests (needs root)
	@scripts/tools.sh test
	$(CARGO) build -p caravan --locked
	$(CARGO) test --workspace --locked

build: ## build the program for development
	@scripts/tools.sh build
	$(CARGO) build -p caravan --locked

release: ## build the program for use
	@scripts/tools.sh build
	$(CARGO) build -p caravan --release --locked

lint: ## check format and lints
	@scripts/tools.sh lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: ## check licences and sources of dependencies (needs cargo-deny)
	$(CARGO) deny --locked check licenses sources bans

tools: ## check for everything that building and testing takes; install what can be installed
	@scripts/tools.sh build lint test

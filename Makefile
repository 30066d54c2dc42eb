# The commands a person types. Each is one script or one cargo call, so that what runs can be read in one place.
.DEFAULT_GOAL := help
.PHONY: help demo test test-vm bench bench-vm build fmt lint doc clean

SHELL := /bin/bash
# Rust is found where rustup puts it, even in a shell that has not been told.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: ## build, start a simulated device, claim it, take pictures, show a text, drop a handler, check the records
	@scripts/setup.sh build
	@scripts/demo.sh

test: ## everything CI runs: format, lints, build, all tests, and those in the virtual machine
	@scripts/test.sh

test-vm: ## only the virtual machine: cameras, lights, sound cards and a GPIO line of a real kernel, with their faults
	@scripts/setup.sh test
	@cargo build --locked --workspace --all-targets # as `make test` builds, so that neither rebuilds what the other built
	@scripts/test-vm.sh

bench: ## the figures: signed calls against bare crypto and a bare server
	@scripts/setup.sh build
	@cargo build --locked --release -p latchkey-runtime -p latchkey-controller -p latchkey-bench
	@cargo run --locked --release -q -p latchkey-bench

bench-vm: ## only the third table, on a real camera, light and sound cards in the virtual machine
	@scripts/setup.sh test
	@cargo build --locked --release -p latchkey-runtime -p latchkey-controller -p latchkey-bench # as `make bench` builds
	@cargo build --locked --workspace --all-targets # as `make test` builds: the program that plays the light
	@scripts/bench-vm.sh

build: ## the two programs, optimised, in target/release
	@scripts/setup.sh build
	@cargo build --locked --release -p latchkey-runtime -p latchkey-controller

fmt: ## format the code
	@cargo fmt --all

lint: ## format check, clippy without mercy, shellcheck and cargo-deny where they are installed
	@scripts/lint.sh

doc: ## the documentation of every crate, in target/doc
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

clean: ## remove what the build and the demo made
	@cargo clean
	@rm -rf demo

# Everything that can be done here. `make help` lists it; only Python 3.11+ and make are needed to start.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Bytecode is kept whatever the shell says: hundreds of tests start a program, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# The same tree with the core compiled; whatever is run in it takes the extensions. It stands here since a target's
# prerequisites are expanded as they are read.
COMPILED := build/compiled
# A folder with behaviour cases (see tests/conformance); none: the runner says so and skips.
CASES ?= $(wildcard ../shared/cases)

# One stamp a lock file: `run` needs no test tools, `test` no linters.
$(VENV)/stamp-%: requirements/%.txt requirements/pip.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing requirements/$*.txt (locked, hashes checked)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/pip.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/$*.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: run
run: $(VENV)/stamp-run ## The whole system on an embedded cluster, with a live table (ARGS="--once -o json" ends by itself)
	@PYTHONPATH=clients/python $(BIN)/vreplica run $(ARGS)

.PHONY: test
test: $(VENV)/stamp-test ## Unit, property, contract and service tests (no cluster, no Go)
	@$(BIN)/python -m pytest -q -n 4 --dist worksteal -m "not (e2e or browser or nodes or sim)" $(ARGS)

.PHONY: test-simulation
test-simulation: $(VENV)/stamp-test ## Tests in simulated clusters: every order of steps, kills, seeds that have found bugs
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m sim tests/simulation $(ARGS)

.PHONY: lint
lint: $(VENV)/stamp-dev ## ruff, mypy strict, import-linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@cd clients/python && ../../$(BIN)/mypy && ../../$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/stamp-dev ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: conformance
conformance: $(VENV)/stamp-test ## Compare with recorded behaviour of Knative and Kubernetes (CASES=DIR)
	@$(BIN)/python -m tests.conformance $(CASES)
	@CASES=$(CASES) $(BIN)/python -m pytest -q -n 0 tests/conformance/test_api_rows.py tests/conformance/test_volume_binder_rows.py

.PHONY: simulate
SEEDS ?= 20
simulate: $(VENV)/stamp-run ## The shipped service under injected faults in virtual time (SEEDS=N, ARGS="--seed S")
	@$(BIN)/vreplica simulate --seeds $(SEEDS) $(ARGS)

.PHONY: exhaustive
exhaustive: $(VENV)/stamp-test ## All interleavings of a small scope, and a kill at every await point (ARGS="--depth D")
	@$(BIN)/python -m tests.simulation.exhaustive $(ARGS)
	@$(BIN)/python -m tests.simulation.await_points

.PHONY: mutants
mutants: $(VENV)/stamp-test ## Break the code on purpose, one break at a time: each must be caught (ARGS="--only NAME")
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: fuzz
INPUTS ?= 20000
fuzz: $(VENV)/stamp-test ## Mutated inputs to every endpoint and parser (INPUTS=N each)
	@$(BIN)/python -m tests.fuzz --target all --inputs $(INPUTS) $(ARGS)

.PHONY: soak
MINUTES ?= 60
soak: $(VENV)/stamp-test ## Hours with faults: nothing may grow (MINUTES=N, ARGS="--backend real")
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

.PHONY: attack
attack: $(VENV)/stamp-test ## Attacks on the running programs, held to their memory limits (SHORT=1 ARGS="--only heads")
	@$(BIN)/python -m tests.attack $(if $(SHORT),--short) $(ARGS)

.PHONY: bench
bench: $(VENV)/stamp-test $(if $(filter 1,$(WITH_COMPILED)),$(COMPILED)/stamp) ## Measure, each figure beside its peer (ONLY=engine,verbs SHORT=1 FORMAT=json WITH_COMPILED=1)
	@$(if $(filter 1,$(WITH_COMPILED)),cd $(COMPILED) && ../../)$(BIN)/python -m tests.bench --only "$(ONLY)" $(if $(SHORT),--short) --format $(or $(FORMAT),table)

$(COMPILED)/stamp: $(VENV)/stamp-dev hatch_build.py $(shell find extender webhook tests manifests clients -name '*.py' -o -name '*.yaml')
	@rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	@cp -r extender webhook $(COMPILED)/
	@$(BIN)/python hatch_build.py $(COMPILED)
	@cp -r tests manifests docs clients pyproject.toml hatch_build.py $(COMPILED)/
	@touch $@

.PHONY: compiled
compiled: $(COMPILED)/stamp ## The core compiled by mypyc under build/compiled, held to the source (needs a C compiler)
	@$(BIN)/python -m tests.compiled . $(COMPILED) $(ARGS)
	@cd $(COMPILED) && ../../$(BIN)/python -m tests.conformance $(abspath $(CASES))
	@cd $(COMPILED) && ../../$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/model tests/engine tests/node tests/whatif tests/service

.PHONY: ui-test
# Without Chromium, and without the right to install it, the tests skip and say so.
ui-test: $(VENV)/stamp-browser ## The page at /ui in a real Chromium (Debian's, installed where it may be), with axe
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || true
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m browser tests/ui $(ARGS)

.PHONY: bench-guard
bench-guard: $(VENV)/stamp-test ## Fail where a ratio is much worse than in tests/bench/baseline.json, twice in a row
	@$(BIN)/python -m tests.bench.guard

.PHONY: quality
quality: $(VENV)/stamp-test ## Placements beside the optimum that a solver finds (ARGS="--short": fewer instances, held to bounds)
	@$(BIN)/python -m tests.quality $(ARGS)

.PHONY: rolling-restart
rolling-restart: $(VENV)/stamp-test ## Requests that succeed while 60 adapters with 10,000 shares are restarted: handed over, drained, at once
	@$(BIN)/python -m tests.quality.rolling_restart $(ARGS)

.PHONY: differential
differential: $(VENV)/stamp-test ## The embedded cluster against a real API server and kube-scheduler (generated operations and clusters)
	@$(BIN)/python -m tests.e2e.build
	@$(BIN)/python -m tests.differential api $(ARGS)
	@$(BIN)/python -m tests.differential scheduler $(ARGS)

.PHONY: e2e
WORKERS ?= 4
# A scenario waits for most of its time: more of them than cores run side by side, each worker with a control plane of its own.
# TOOLS= builds neither helm nor promtool: what needs them is skipped unless they are there.
TOOLS ?= 1
# KUBERNETES=1.36 chooses the control plane's version; the newest without.
export KUBERNETES
e2e: $(VENV)/stamp-test ## The end-to-end suite on a real control plane (built with Go, cached) and on the embedded one (KUBERNETES=1.36 WORKERS=N)
	@$(BIN)/python -m tests.e2e.build $(if $(TOOLS),,--only-control-plane)
	@$(if $(TOOLS),$(BIN)/python -m tests.manifests.tool)
	@$(BIN)/python -m pytest -q -m e2e tests/e2e -p no:randomly -o log_level=INFO \
	  -n $(WORKERS) --dist load --maxschedchunk 1 $(ARGS)

.PHONY: e2e-matrix
e2e-matrix: $(VENV)/stamp-test ## The end-to-end suite on each version of Kubernetes, and the table of docs/install.md (VERSIONS="1.36 1.37")
	@$(BIN)/python -m tests.e2e.matrix $(VERSIONS)

.PHONY: e2e-nodes
NODE_PACKAGES := containerd runc containernetworking-plugins mmdebstrap busybox-static iproute2
# In namespaces of their own: nothing of this machine changes, and the end of the first process ends everything. What is missing skips by name.
e2e-nodes: $(VENV)/stamp-test ## Our image and chart on three real nodes: kubelet and containerd as root (Debian's, installed where they may be)
	@test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || dpkg -s $(NODE_PACKAGES) >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(NODE_PACKAGES) >/dev/null; } || true
	@$(BIN)/python -m tests.e2e.build --only-control-plane kubelet
	@$(BIN)/python -m tests.manifests.tool
	@$(BIN)/python -m tests.nodes.image
	@$$(unshare --net true 2>/dev/null && echo unshare --net --pid --fork --kill-child --mount --mount-proc) \
	  $(BIN)/python -m pytest -q -m "nodes and $(if $(LONG),long,not long)" tests/nodes -p no:randomly -p no:xdist $(ARGS)

.PHONY: rolling-restart-nodes
rolling-restart-nodes: ## The scene of rolling-restart with 20 adapters in containers on three real nodes (some ten minutes)
	@$(MAKE) --no-print-directory e2e-nodes LONG=1
	@cat build/rolling-restart-nodes.md

.PHONY: image
IMAGE ?= vreplica-scheduler:0.1.0
ENGINE ?= docker
COMPILE ?= 1
image: ## The container image that the Deployments name (IMAGE=NAME ENGINE=podman; COMPILE= leaves the core as it is; needs an engine)
	@$(ENGINE) build --file Containerfile --tag $(IMAGE) --build-arg VERSION=$(lastword $(subst :, ,$(IMAGE))) \
	  --build-arg REVISION=$(shell git rev-parse HEAD) --build-arg COMPILE=$(COMPILE) .

.PHONY: manifests
manifests: $(VENV)/stamp-test ## The kustomize base and components, generated from the Helm chart (ARGS=--check; needs Go once)
	@$(BIN)/python -m tests.manifests $(ARGS)

.PHONY: sbom
sbom: $(VENV)/stamp-test ## The CycloneDX list of what the image has, from the locks (requirements/image.cdx.json)
	@$(BIN)/python -m tests.supply.sbom

.PHONY: krew
krew: $(VENV)/stamp-test ## The command line as krew installs it, into dist/: wheel, archive and manifest (URI=https://... where the archive will be)
	@$(BIN)/python -m tests.supply.krew --uri $(URI)

.PHONY: audit
audit: $(VENV)/stamp-audit ## Known vulnerabilities of what is locked, by pip-audit (left out by name where nothing answers)
	@$(BIN)/python -m tests.supply.audit $(ARGS)

.PHONY: lock
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header
lock: ## Resolve dependencies anew into requirements/ (needs uv; ARGS=--upgrade takes the newest)
	@for what in "image:" "run:--group build" "test:--group build --group test --group quality" "dev:--group build --group test --group lint --group compile" \
	  "browser:--group build --group test --group browser" "image-otel:--constraints requirements/image.txt --extra otel"; do \
	  $(LOCK) $(ARGS) pyproject.toml $${what#*:} -o requirements/$${what%%:*}.txt; done
	@$(LOCK) $(ARGS) --constraints requirements/dev.txt --group build --group compile -o requirements/image-build.txt
	@$(LOCK) $(ARGS) --group pip -o requirements/pip.txt
	@$(LOCK) $(ARGS) --constraints requirements/dev.txt --constraints requirements/pip.txt --group audit -o requirements/audit.txt

.PHONY: clean
clean: ## Remove the environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

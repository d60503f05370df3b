# Everything a newcomer needs. `make help` explains itself.
PYTHON ?= python3
VENV := .venv
TYPING ?= build/typing
BIN := $(VENV)/bin
AUDIT := build/audit
DOCS := build/docs-venv
FLOORS := build/floors
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip
LOCKED := install -qq --no-compile --require-hashes
UV ?= uv
LOCK = UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate --no-emit-index-url --no-emit-find-links $(UPGRADE)

# If this is set, every process compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-rest test-times test-all test-live test-kill lint types docs farm floors pages bench house lock audit release clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# Only files with a hash in requirements/ are installed. pip accepts no hash for VineLM itself: a second call installs it, which
# downloads nothing, as the build backend is locked, too. Python compiles what is imported; pip would compile all (half a minute).
$(VENV)/.demo: pyproject.toml requirements/build.txt requirements/demo.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "VineLM needs Python >= 3.11: set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing VineLM into $(VENV) ..."
	@$(PIP) $(LOCKED) -r requirements/build.txt -r requirements/demo.txt
	@$(PIP) install -qq --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	@echo "installing the development tools into $(VENV) ..."
	@$(PIP) $(LOCKED) -r requirements/dev.txt
	@touch $@

# 240 MB, only for the tests of profiles and batches on a Ray cluster, which are skipped without it.
$(VENV)/.ray: $(VENV)/.dev requirements/ray.txt
	@echo "installing Ray into $(VENV) ..."
	@$(PIP) $(LOCKED) -r requirements/ray.txt
	@touch $@

setup: $(VENV)/.dev ## create .venv with everything that tests and checks need

demo: $(VENV)/.demo ## recorded answers of real models: profile, estimate, judge, report; no keys, no network, some seconds
	@$(BIN)/vinelm demo

# Stores of tests need not survive the machine: in memory their commits wait for no disk.
SCRATCH := $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -gt 4000000 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
PYTEST = TMPDIR=$(SCRATCH) OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(shell expr $$(nproc 2>/dev/null || echo 2) + 1) --dist loadfile

test: $(VENV)/.dev ## run the tests but the long ones, on every core
	@$(PYTEST) -m "not long" --dist worksteal

test-fast: $(VENV)/.dev ## run those of them that open no socket and start no process; from the second run on, only quick ones
	@$(PYTEST) -m "not long" --dist worksteal --stay-inside -r fE

test-rest: $(VENV)/.dev ## run what the last test-fast left out
	@$(PYTEST) -m "not long" --dist worksteal --left-out

test-times: $(VENV)/.dev ## run them all, and write which are the slowest
	@$(PYTEST) -m "not long" --times

test-all: test docs $(VENV)/.ray ## the tests, then the long ones (installs Ray; Debian: apt install postgresql redis-server prometheus curl): the site, brute force, kills and resumes
	@$(PYTEST) -m long
	@$(DOCS)/bin/python scripts/notebooks.py --check
	@$(BIN)/python tests/attacks/check_planner.py
	@$(BIN)/python tests/attacks/crash_profile.py
	@$(BIN)/python tests/attacks/crash_replay.py

lint: $(VENV)/.dev ## ruff: style and mistakes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# A folder of links that shows the parts as vinelm.*, for tools that read the source.
farm:
	@rm -rf $(TYPING)/vinelm $(TYPING)/examples && mkdir -p $(TYPING)/vinelm
	@ln -s "$(CURDIR)/examples" $(TYPING)/examples
	@ln -sf "$(CURDIR)/tests/kit/front_door_types.py" $(TYPING)/front_door_types.py
	@for item in vinelm/* controller estimator profiler traces workflows; do ln -s "$(CURDIR)/$$item" "$(TYPING)/vinelm/$$(basename $$item)"; done

types: $(VENV)/.dev farm ## mypy --strict over a link farm that shows the parts as vinelm.*, over examples/, and what users see of vinelm
	@cd $(TYPING) && MYPYPATH=. "$(CURDIR)/$(BIN)/python" -m mypy --config-file "$(CURDIR)/pyproject.toml" -p vinelm -p examples -m front_door_types

$(DOCS)/.installed: pyproject.toml $(VENV)/.demo requirements/docs.txt
	@echo "installing the tools of the documentation into $(DOCS) ..."
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(PIP) --python $(DOCS)/bin/python $(LOCKED) -r requirements/build.txt -r requirements/docs.txt
	@$(PIP) --python $(DOCS)/bin/python install -qq --no-deps --no-build-isolation -e .
	@touch $@

docs: $(DOCS)/.installed farm ## build the documentation site into build/site, strictly, and check its links and how long README is; no network
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
	@$(DOCS)/bin/python scripts/docs_parts/check_site.py build/site
	@$(DOCS)/bin/python scripts/readme_length.py

test-live: $(VENV)/.dev ## hold what VineLM says against the counters of llama.cpp; skipped where that is not installed
	@$(BIN)/python -m pytest -q -rs -n 0 tests/live

test-kill: $(VENV)/.dev ## profile on a real engine with a tiny random model, kill it half-way, resume (downloads torch)
	@$(BIN)/python scripts/live/profile_live.py

house: $(VENV)/.dev ## the structure in figures: files, imports, layers, what a request passes
	@$(BIN)/python scripts/house.py

$(FLOORS)/.installed: pyproject.toml $(VENV)/.demo requirements/floors.txt
	@echo "installing the lowest versions of all libraries into $(FLOORS) ..."
	@test -x $(FLOORS)/bin/python || $(PYTHON) -m venv --without-pip $(FLOORS)
	@$(PIP) --python $(FLOORS)/bin/python $(LOCKED) -r requirements/build.txt -r requirements/floors.txt
	@$(PIP) --python $(FLOORS)/bin/python install -qq --no-deps --no-build-isolation -e .
	@touch $@

floors: $(FLOORS)/.installed ## profile, run a batch and serve with the lowest versions that pyproject.toml declares
	@$(FLOORS)/bin/python scripts/smoke.py > $(FLOORS)/smoke.log || { tail -n 40 $(FLOORS)/smoke.log; exit 1; }

# The page about fleets needs PostgreSQL, Redis and curl: `make test-all` runs it.
pages: $(VENV)/.dev ## run the commands that README and pages show, and compare what they print; no network
	@TMPDIR=$(SCRATCH) $(BIN)/python scripts/page_outputs.py --check $(filter-out docs/fleet.md,README.md $(wildcard docs/*.md))

bench: $(VENV)/.dev ## run every benchmark and print its table
	@for script in scripts/bench_*.py; do $(BIN)/python $$script || exit 1; done

lock: ## rewrite requirements/ from pyproject.toml (needs uv); newer versions: UPGRADE=--upgrade
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: install it, or set UV=..."; exit 1; }
	@$(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	@$(LOCK) -c requirements/dev.txt pyproject.toml -o requirements/runtime.txt
	@$(LOCK) -c requirements/dev.txt --extra ray pyproject.toml -o requirements/ray.txt
	@$(LOCK) -c requirements/dev.txt --extra demo pyproject.toml -o requirements/demo.txt
	@$(LOCK) -c requirements/dev.txt --extra demo --extra fleet --extra gateway --extra metrics --extra postgres pyproject.toml -o requirements/serve.txt
	@$(LOCK) --resolution lowest-direct --extra demo pyproject.toml -o requirements/floors.txt
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | $(LOCK) -c requirements/dev.txt - -o requirements/build.txt
	@$(LOCK) --group audit -o requirements/audit.txt
	@$(LOCK) -c requirements/dev.txt --group docs --extra demo --extra pandas pyproject.toml -o requirements/docs.txt

$(AUDIT)/tools/.installed: $(VENV)/.demo requirements/audit.txt
	@echo "installing the audit tools into $(AUDIT)/tools ..."
	@$(PYTHON) -m venv --without-pip $(AUDIT)/tools
	@$(PIP) --python $(AUDIT)/tools/bin/python $(LOCKED) -r requirements/audit.txt
	@touch $@

# The libraries of the core and nothing else: what the SBOM lists.
$(AUDIT)/runtime/.installed: $(VENV)/.demo requirements/runtime.txt
	@echo "installing the libraries of the core into $(AUDIT)/runtime ..."
	@rm -rf $(AUDIT)/runtime && $(PYTHON) -m venv --without-pip $(AUDIT)/runtime
	@$(PIP) --python $(AUDIT)/runtime/bin/python $(LOCKED) -r requirements/runtime.txt
	@touch $@

audit: $(AUDIT)/tools/.installed $(AUDIT)/runtime/.installed ## known vulnerabilities of requirements/, and dist/sbom.cdx.json; STRICT=1: fail if not audited
	@$(BIN)/python scripts/audit.py $(if $(STRICT),--strict)

release: $(VENV)/.dev audit ## build the tagged commit into dist/: wheel, source archive, SBOM, SHA256SUMS; uploads nothing; REPOSITORY=https://...
	@$(BIN)/python scripts/release.py --repository "$(REPOSITORY)"

clean: ## remove what the build made; runs/ stays
	@rm -rf $(VENV) build dist *.egg-info

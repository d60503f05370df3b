# Everything a newcomer needs. `make help` explains itself.
PYTHON ?= python3
VENV := .venv
TYPING ?= build/typing
BIN := $(VENV)/bin
PIP_QUIET := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-live lint types bench house constraints clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "VineLM needs Python >= 3.11: set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing VineLM into $(VENV) ..."
	@$(PIP_QUIET) $(BIN)/python -m pip install -qq -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the development tools into $(VENV) ..."
	@$(PIP_QUIET) $(BIN)/python -m pip install -qq -e '.[dev]'
	@touch $@

setup: $(VENV)/.dev ## create .venv with everything that tests and checks need

demo: $(VENV)/.runtime ## profile, estimate, plan, serve, report: no keys, no network, under a minute
	@$(BIN)/vinelm demo

test: $(VENV)/.dev ## run the tests, on every core
	@PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile

test-all: test ## the tests, then the long checks: planner against brute force, kills and resumes
	@$(BIN)/python scripts/check_planner.py
	@$(BIN)/python scripts/crash_profile.py

lint: $(VENV)/.dev ## ruff: style and mistakes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy --strict over a link farm that shows the parts as vinelm.*
	@rm -rf $(TYPING)/vinelm && mkdir -p $(TYPING)/vinelm
	@for item in vinelm/* controller estimator profiler traces workflows; do ln -s "$(CURDIR)/$$item" "$(TYPING)/vinelm/$$(basename $$item)"; done
	@cd $(TYPING) && MYPYPATH=. "$(CURDIR)/$(BIN)/python" -m mypy --config-file "$(CURDIR)/pyproject.toml" -p vinelm

test-live: $(VENV)/.dev ## profile on a real engine with a tiny random model, kill it half-way, resume (downloads torch)
	@$(BIN)/python scripts/live/profile_live.py

house: $(VENV)/.dev ## the structure in figures: files, imports, layers, what a request passes
	@$(BIN)/python scripts/house.py

bench: $(VENV)/.dev ## run every benchmark and print its table
	@for script in scripts/bench_*.py; do $(BIN)/python $$script || exit 1; done

constraints: $(VENV)/.dev ## rewrite constraints.txt from pyproject.toml (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml -o constraints.txt

clean: ## remove what the build made; runs/ stays
	@rm -rf $(VENV) build dist *.egg-info

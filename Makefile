# Everything a user or a developer types. Each target works as the first command on a clean clone.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Test files side by side, in the order in which they are found: the longest are among the first.
WORKERS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup run test lint bench load lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.run ## prepare .venv, so that .venv/bin/lingua works

run: $(VENV)/.run ## start a whole mesh on this machine (Ctrl-C stops it)
	@exec $(BIN)/lingua up $(ARGS)

test: $(VENV)/.dev ## lint, type-check and run every test
	@$(MAKE) --no-print-directory lint
	@# Tests start hundreds of processes; with PYTHONDONTWRITEBYTECODE set each of them would compile every module.
	@$(BIN)/python -m compileall -q broker edge linguamesh lua mesh selector tests/support
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

lint: $(VENV)/.dev ## ruff, mypy --strict, import contracts, Lua headers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m lua.engine.check

bench: $(VENV)/.dev ## measure and print; nothing is asserted
	@$(BIN)/python -m bench $(ARGS)

load: $(VENV)/.dev ## put load on a mesh of its own for 30 s; fails if a limit is missed
	@$(BIN)/python -m loadtest $(ARGS)

lock: $(VENV)/.dev ## compile requirements/*.in to pinned and hashed *.txt (needs uv)
	@for name in run dev; do uv pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --python-version 3.11 requirements/$$name.in --output-file requirements/$$name.txt; done

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Lingua Mesh needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing pinned requirements into $(VENV) (first time only)"
	@$(PIP_INSTALL) --require-hashes -r requirements/run.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@echo "Compiling the selection kernel"
	@$(BIN)/python -c 'from selector.kernel_cache import warm_up; warm_up()'
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

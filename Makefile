# Every target says what it does and stops at the first failure.  `make` alone lists them.
# Needs python3 (3.11 or newer, with venv), git and make; nothing else.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
HOST   ?= 127.0.0.1
PORT   ?= 8400

VENV := .venv
BIN  := $(VENV)/bin
# pip must take exactly what the lock files say, whatever the machine's own configuration adds.  It repeats a request that
# gets no answer, but gives up on a download that breaks off, so all of it is tried thrice: what came whole is kept.
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 10 --timeout 60 --require-hashes --only-binary :all:
SELF := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

# The tests start hundreds of processes; without bytecode each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# Two cores: two processes of unit tests, three of tests on real parts, which wait for other processes; each file of
# these stays in one process, with the servers that it shares.
APART := --ignore tests/cluster --ignore tests/images --ignore tests/lab --ignore tests/processes

define say
@printf '\033[1m==> %s\033[0m\n' $(1)
endef

define fetched
for pause_s in 5 30 0; do $(PIP) -r $(1) && break; [ $$pause_s -gt 0 ] || exit 1; sleep $$pause_s; done
endef

.PHONY: help install run test test-unit test-parts soak check bench boards docs lock image chart image-test clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

install: $(VENV)/.everything ## put everything (all extras, development tools) into .venv

run: $(VENV)/.service ## serve the API and the in-process controller on SQLite; prints the URL and a first curl
	$(call say,"serving on http://$(HOST):$(PORT) with the database in ./var (end with Ctrl-C)")
	@mkdir -p var
	@FLEETWRIGHT_DATABASE_URL="$${FLEETWRIGHT_DATABASE_URL:-sqlite+aiosqlite:///var/fleetwright.db}" \
		FLEETWRIGHT_LOG_FORMAT="$${FLEETWRIGHT_LOG_FORMAT:-console}" \
		exec $(BIN)/fleetwright serve --host $(HOST) --port $(PORT) --anonymous-read

test: test-unit test-parts ## run every test; parts this machine cannot have are skipped with a reason

test-unit: install ## run the tests that need no real part: decision packages, service, command line, chart
	$(call say,"unit tests")
	$(BIN)/pytest --numprocesses 3 --dist worksteal $(APART) -m "not postgres"

test-parts: install ## run the tests on real parts: processes, network namespaces, databases, Prometheus, Kubernetes, Ray
	$(call say,"processes and network namespaces and real PostgreSQL and Prometheus and Kubernetes")
	$(BIN)/pytest --numprocesses 3 --dist loadfile tests/processes tests/lab tests/images tests/cluster -m "not ray"
	$(call say,"the service and its store on PostgreSQL")
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(APART) -m postgres
	$(call say,"a real Ray cluster")
	$(BIN)/pytest tests/cluster -m ray

soak: install ## run every test in its long form: many new examples, every operation, every interruption (hours)
	$(call say,"every test in its long form")
	FLEETWRIGHT_SOAK=1 $(MAKE) test

check: install ## format, lint, types, layers, generated files
	$(call say,"format")
	$(BIN)/ruff format --check .
	$(call say,"lint")
	$(BIN)/ruff check .
	$(call say,"types")
	$(BIN)/mypy
	$(call say,"layers")
	$(BIN)/lint-imports --no-logo
	$(call say,"repository checks")
	$(BIN)/python -m scripts.repo_checks
	$(call say,"metrics of alerts and dashboards and documentation")
	$(BIN)/python -m scripts.metric_checks
	$(call say,"generated files")
	$(BIN)/python -m scripts.dashboards --check
	$(BIN)/python -m scripts.chart_schema --check
	$(BIN)/python -m scripts.chart_readme --check
	$(BIN)/python -m scripts.reference_docs --check
	$(BIN)/python -m scripts.api_contract --check

bench: install ## measure, print tables, write bench/out/*.json and the tables of bench/REPORT.md
	$(call say,"benchmarks")
	$(BIN)/python -m bench

docs: install ## build the documentation into site/
	$(call say,"documentation")
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

boards: install ## draw the dashboards from a running release into docs/images (npm, Chromium, minutes)
	$(call say,"boards")
	cd scripts/boards && npm install --no-package-lock --no-audit --no-fund --legacy-peer-deps --silent && npx vite build
	FLEETWRIGHT_BOARDS=1 $(BIN)/pytest tests/cluster/test_board_pictures.py

lock: ## resolve the lock files anew from pyproject.toml
	$(call say,"locking")
	UV=$(BIN)/uv scripts/lock.sh --upgrade

image: ## build the images `agent`, `api` and `full` with buildah or docker; PYTHON_IMAGE=python:3.13-slim@sha256:… pins the base
	$(call say,"images")
	@PYTHON_IMAGE='$(PYTHON_IMAGE)' IMAGE='$(IMAGE)' scripts/build_images.sh agent api full

chart: install ## package the chart into dist/: archive, OCI layout, bills of materials of the images
	$(call say,"chart")
	@$(BIN)/python -m scripts.chart_package dist

image-test: install ## build the images on a base made of Debian packages, and start every container of the chart in them (root, buildah)
	$(call say,"containers of the chart in the images")
	FLEETWRIGHT_IMAGES=build $(BIN)/pytest --log-cli-level INFO tests/images

clean: ## remove everything that make made, the local database too
	$(call say,"removing everything that make made")
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site var bench/out dist

$(BIN)/python:
	$(call say,"virtual environment in $(VENV)")
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) must be Python 3.11 or newer with venv (Debian: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.service: requirements.lock pyproject.toml | $(BIN)/python
	$(call say,"the service and its locked dependencies")
	@[ -e $(VENV)/.everything ] || { $(call fetched,requirements.lock); $(SELF); }
	@touch $@

$(VENV)/.everything: requirements-dev.lock requirements-amd.lock pyproject.toml | $(BIN)/python
	$(call say,"everything: all extras and development tools")
	@$(call fetched,requirements-dev.lock)
	@$(call fetched,requirements-amd.lock --upgrade --target $(VENV)/amd)
	@$(SELF)
	$(call say,"compiled kernels")
	@$(BIN)/python -m scripts.warm_numba_cache
	@touch $@

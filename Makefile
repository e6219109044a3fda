# Everything runs in .venv, which `make` builds from requirements.lock on first use.
# A machine needs only git, make and Python 3.11 or 3.12. `make help` lists the targets.

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
DEMO   := examples/quickstart.yaml
TEST_FLAGS ?= -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check format bench lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP)  ## build .venv from the lock file

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	@sh tools/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## a quick sweep of aggregated and disaggregated deployments, under three minutes
	$(VENV)/bin/spica sweep $(DEMO)

test: $(STAMP)  ## the tests, real components included
	$(PY) -m pytest -m "not slow" $(TEST_FLAGS)

test-all: $(STAMP)  ## the tests, the long ones included
	$(PY) -m pytest $(TEST_FLAGS)

check: $(STAMP)  ## lint, format, types, order of imports and tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m mypy
	PYTHONPATH=src $(VENV)/bin/lint-imports --no-cache --no-logo
	$(PY) -m pytest -m "not slow" $(TEST_FLAGS)

format: $(STAMP)  ## let ruff put the code in shape
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(STAMP)  ## measure; the results go to bench/results
	$(PY) -m bench

lock: $(STAMP)  ## resolve the dependencies again and pin them with hashes
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/bin/uv pip compile pyproject.toml --extra dev \
	  --override overrides.txt --prerelease=if-necessary-or-explicit --universal --generate-hashes \
	  --quiet -o requirements.lock

clean:  ## remove .venv and all caches (run folders stay)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

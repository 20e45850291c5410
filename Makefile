# Two commands from nothing: `make demo` and `make test`. All that is made stays in this folder (.venv, .cache, .dagster).
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/ready
# Python compiles what is imported, and most modules never are.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-compile
UV := $(BIN)/uv pip install --no-cache --quiet --no-deps --no-build-isolation --python $(BIN)/python
DAGSTER := $(CURDIR)/.dagster
# Each process would compile some 1,500 modules again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests quick night browser screenshots docs soak ui lint bench bench-tpch bench-memory clean setup constraints audit

# The demo reports to the same Dagster that `make ui` shows.
demo: $(READY) $(DAGSTER)/dagster.yaml
	DAGSTER_HOME=$(DAGSTER) $(BIN)/deltafold demo .

# Lint beside the tests, as types take one core half a minute. The slowest tests are printed at the end;
# .reports/tests.xml has the time of each.
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --junitxml .reports/tests.xml

# What needs no Spark, in two minutes, for working; then the tests of a folder: pytest tests/FOLDER.
quick: $(READY)
	$(BIN)/ruff check --quiet .
	$(BIN)/python -m pytest --quick -n 2 --dist loadfile --durations=5

# Whole matrices of which `make test` runs samples (every benchmark query, every crash, kills by signal, a served
# Dagster, a full disk, a cluster that loses a worker), then an hour of random work with kills.
night: lint
	-@$(MAKE) --no-print-directory browser
	$(BIN)/python -m pytest --long -n 2 --dist loadfile --no-loadscope-reorder --junitxml .reports/night.xml; \
		tests=$$?; $(BIN)/python -m tests.soak && exit $$tests

# An hour of random work with kills; the seed is printed first, and --seed does the same again.
soak: $(READY)
	$(BIN)/python -m tests.soak

# The browser that a test looks at Dagster's pages with; without it that part is skipped, and said to be.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium >/dev/null; }

# The screenshots of the pages on Dagster.
screenshots: $(READY) browser
	DELTAFOLD_DOCS=1 $(BIN)/python -m pytest --long tests/dagster/web/test_theirs.py

# The site, in build/site; a warning, such as of a link that leads nowhere, is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

lint: $(READY)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

ui: $(READY) $(DAGSTER)/dagster.yaml
	PYTHONWARNINGS='ignore:Function' DAGSTER_HOME=$(DAGSTER) $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-tpch: $(READY)
	$(BIN)/python -m benchmarks tpch

bench-memory: $(READY)
	$(BIN)/python -m benchmarks memory

setup: $(READY)

# The environment: what builds packages, then every package at its pinned version and hash (the list is complete: nothing
# is resolved here), then the project itself, which brings nothing of its own. uv is quicker than pip, and does not read
# pip's configuration: where it cannot install, pip does.
$(READY): constraints.txt constraints-build.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later with venv is needed: install it, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r constraints-build.txt
	@$(UV) --require-hashes -r constraints.txt || $(PIP) --require-hashes -r constraints.txt
	@$(PIP) -e .
	@touch $(READY)

$(DAGSTER)/dagster.yaml: dagster.yaml
	mkdir -p -m 700 $(DAGSTER)
	cp dagster.yaml $(DAGSTER)/dagster.yaml

# Resolves the pins of pyproject.toml again (no addresses go in: not even in comments).
PIN := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

constraints: $(READY)
	$(PIN) pyproject.toml --all-extras --output-file constraints.txt
	printf 'setuptools\nuv\nwheel\n' | $(PIN) - --constraint constraints.txt --output-file constraints-build.txt

# Asks PyPI which pinned versions have known vulnerabilities; fails too where it cannot be asked about one.
audit: $(READY)
	UV_CACHE_DIR=$(CURDIR)/.cache/uv $(BIN)/uv tool run --quiet pip-audit --strict --require-hashes --disable-pip \
		--cache-dir $(CURDIR)/.cache/pip-audit -r constraints.txt -r constraints-build.txt

clean:
	rm -rf .venv .cache .reports .dagster .demo .warehouse build dist *.egg-info .hypothesis .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each target sets up what it needs in .venv, quietly and only once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench clean
.SILENT:

demo: .venv/core
	$(BIN)/bertflow demo

test: .venv/dev
	$(BIN)/python -m pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

bench: .venv/dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("bertflow needs Python 3.10 or newer; this is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 10) else 0)'
	echo "Setting up .venv (once; a few minutes, mostly for torch)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/dev: .venv/core
	echo "Adding the test tools and extras to .venv (once)"
	$(PIP) -e '.[all,dev]'
	touch $@

# Each target sets up what it needs in .venv, quietly and only once; test-core and test-lowest have their own.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := -m pip install -qq --disable-pip-version-check
PYTEST := -m pytest --numprocesses auto --dist worksteal
PIP := $(BIN)/python $(INSTALL) -c constraints.txt

.PHONY: demo test test-core test-lowest fortress audit lint bench docs clean
.SILENT:

demo: .venv/core
	$(BIN)/bertflow demo

test: .venv/dev
	$(BIN)/python $(PYTEST)

# As a user has it without extras: the built package, and what needs an extra says so.
test-core:
	test -x .venv-core/bin/python || $(PYTHON) -m venv .venv-core
	.venv-core/bin/python $(INSTALL) -c constraints.txt . pytest-xdist
	.venv-core/bin/python $(PYTEST) $(CORE)
CORE := tests/test_extras.py tests/test_public_api.py tests/data tests/flows tests/calibrators

# The lowest versions that pyproject.toml allows. Warnings are no errors there: old packages warn of each other.
# Tuning on NLI asks for a newer sentence-transformers than the rest, so it comes last.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python $(INSTALL) -c constraints-lowest.txt -e '.[$(LOWEST)]' pytest-xdist pandas
	.venv-lowest/bin/python $(PYTEST) -W default --ignore tests/pretraining --ignore tests/test_finetuning.py
	.venv-lowest/bin/python $(INSTALL) accelerate==1.7.0 sentence-transformers==6.2.0
	.venv-lowest/bin/python $(PYTEST) -W default tests/test_finetuning.py
LOWEST := data,evaluation,faiss,figures,mteb,onnx,parquet,ray,sentence-transformers

# The attack: every format that is read, damaged in at least 100 ways; every verb that writes, killed 20 times. Half an hour.
fortress: .venv/dev
	FORTRESS_CASES=110 FORTRESS_KILLS=20 $(BIN)/python $(PYTEST) tests/fortress

# Known faults and licences of the pinned packages; the first needs the network, and says so where it has none.
audit: .venv/dev
	$(PIP) pip-audit
	$(BIN)/python results/audit.py

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/codespell

bench: .venv/dev
	for script in encoding fitting applying static rates; do $(BIN)/python benchmarks/$$script.py || exit 1; done

# The site, into site/: strict, so that a dead link fails.
docs: .venv/dev
	$(PIP) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf site .venv .venv-core .venv-lowest build dist .mypy_cache .pytest_cache .ruff_cache

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

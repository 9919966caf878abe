# Every target makes its own virtual environment if there is none, and is quick when there is.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests are spread over processes, one more than there are cores; PROCESSES=0 runs them one by one.
PROCESSES ?= auto --maxprocesses=4

# Dozens of test processes import the same modules: where Python is told to keep no compiled ones, each compiles them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-data test-long audit test-system lint bench docs clean

demo: $(READY)
	$(BIN)/wsl run --estimator ppl --generator mcl-skewed

test: $(READY)
	$(BIN)/python -m pytest -m "not system and not long" --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

# The tests of real data, below WSL_DATA_DIR; `make test` skips them where it is not set.
test-data: $(READY)
	$(BIN)/python -m pytest -m "data and not system and not long" --require-data --numprocesses=$(PROCESSES)

test-long: $(READY)
	$(BIN)/python -m pytest -m long --timeout 7200 --durations 0

audit: $(READY)
	.ci/audit $(BIN)/python

test-system: $(READY)
	.ci/install-system $(BIN)/python
	$(BIN)/python -m pytest -m system --numprocesses=$(PROCESSES) --dist=loadgroup

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build/html

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

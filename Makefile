# Two commands: `make demo` sets everything up and does the main job, `make test` proves it.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what is imported when it first is; pip would compile three times as much, half a minute long.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# The pip that comes with Python 3.11 takes 15 seconds longer to choose among the files of an index.
VENV = test -x $(BIN)/python || { $(PYTHON) -m venv .venv && $(PIP) --upgrade pip; }
DEMO := $(if $(QUICK),experiments/tools/demo-quick.toml,experiments/tools/demo.toml)
# Three processes on two cores, because tests wait for processes that they start; one thread each, because more would
# fight for the cores. Files of tests lie in memory where 4 GB are free: runs wait for the disk at each
# record, up to half of a test's time.
MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk '$$1 + 0 > 4000000 {print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')
TEST := $(MEMORY) OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(BIN)/pytest -n 3 --dist worksteal

.PHONY: demo test test-all lint types pytest setup setup-dev docs bench bench-full clean

demo: setup
	$(BIN)/assay run $(DEMO) --or-resume

# Types are checked on one core, which would leave the other idle: tests begin beside them. The types
# of the tests themselves, which run anyway, wait for `make test-all`.
test: lint
	@$(MAKE) --no-print-directory -k -j2 types pytest TYPED="src benchmarks examples"

test-all: lint .venv/installed-all
	@$(MAKE) --no-print-directory -k -j2 types pytest SELECT="-m ''"

# To rewrite all asserts takes each process a quarter of a minute: only what failed runs again with
# rewritten ones, to say what was compared.
pytest: setup-dev
	@$(BIN)/python -m tests.size
	$(TEST) $(SELECT) --assert=plain || { $(TEST) $(SELECT) --last-failed --last-failed-no-failures none; exit 1; }

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup-dev
	$(BIN)/pyright $(TYPED)

docs: setup
	$(BIN)/python -m assay.experiment.reference > docs/experiment.md

# Measures the core anew.
bench: setup
	$(BIN)/python -m benchmarks.grpo core
	$(BIN)/python -m benchmarks.report

# Goes on where it was interrupted: a cell with a file under benchmarks/results is done.
bench-full: setup
	$(BIN)/python -m benchmarks.grpo full
	$(BIN)/python -m benchmarks.sft full
	$(BIN)/python -m benchmarks.rollout full
	$(BIN)/python -m benchmarks.limit full
	$(BIN)/python -m benchmarks.report

setup: .venv/installed
setup-dev: .venv/installed-dev

.venv/installed: pyproject.toml constraints.txt
	$(VENV)
	$(PIP) -e '.[train]'
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt
	$(VENV)
	$(PIP) -e '.[train,dev]'
	touch .venv/installed $@

# What only slow tests need.
.venv/installed-all: .venv/installed-dev
	$(PIP) -e '.[train,dev,ray]'
	touch $@

clean:
	rm -rf .venv build *.egg-info src/*.egg-info .pytest_cache .ruff_cache .hypothesis

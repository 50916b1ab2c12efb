# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
# Needs Python >= 3.10 and a C++ compiler. `make demo PYTHON=python3.12` picks an interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# At most four workers: a test may hold a compiled model and a C++ compiler at once.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist worksteal
# Set to run whole sweeps and the longest tests too: half an hour on two cores instead of a quarter.
THOROUGH ?=
DEMO_ARGS ?=
BENCH_ARGS ?= --quick
BENCHES ?= $(wildcard benchmarks/bench_*.py)

.PHONY: demo test check bench bytecode format clean
.DEFAULT_GOAL := demo

demo: bytecode
	$(BIN)/accelopt demo $(DEMO_ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(if $(THOROUGH),--thorough)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: bytecode
	@status=0; for script in $(BENCHES); do echo "== $$script"; $(BIN)/python -m benchmarks.$$(basename $$script .py) $(BENCH_ARGS) || status=1; done; exit $$status

# As pip does for what it installs, which an editable install leaves to the first import: where PYTHONDONTWRITEBYTECODE is
# set, every process would compile our 150 modules again, a third of a second of each start-up that is measured.
bytecode: $(INSTALLED)
	@$(BIN)/python -m compileall -q accelopt_compile backends cache

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

# Remade when a pinned version or the package's metadata changes; a .venv whose interpreter is gone is made anew.
$(INSTALLED): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 10) else "Python 3.10 or newer is needed and $(PYTHON) is %d.%d; try make PYTHON=python3.12" % v[:2])'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $(INSTALLED)

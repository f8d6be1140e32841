# Two commands for newcomers: `make quickstart` and `make test`. The rest is for people at work on it.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

QUICK := not slow and not bench and not chaos and not cluster

.PHONY: quickstart reproduce test test-slow test-device gpu-acceptance simulate bench chaos cluster-test pictures lint format wheel clean

quickstart: $(VENV)/.installed
	$(BIN)/sweep run quickstart
	@echo "To type sweep without its folder: . $(BIN)/activate"

# The paper's experiment on the files under DATA; stop it and type the same again, it goes on.
DATA ?= $(or $(SWEEP_DATA),../shared/data)
reproduce: $(VENV)/.installed
	$(BIN)/sweep data prepare act --from $(DATA)/har-rebuilt.npz
	$(BIN)/sweep data prepare reuters --from $(DATA)/reuters21578.tar.gz
	$(BIN)/sweep data prepare news --from $(DATA)/20news-bydate.tar.gz
	$(BIN)/sweep data prepare mimic --from $(DATA)/mimic-iii-demo
	$(BIN)/sweep data prepare eicu --from $(DATA)/eicu-demo
	for name in reproduction-core reproduction-news reproduction; do $(BIN)/sweep run $$name; $(BIN)/sweep report $$name; done

# tests/conftest.py orders the files. One thread each: the threads of several BLAS would wait for one another.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
test test-slow: export OMP_NUM_THREADS := 1
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -rs $(PARALLEL) -m "not serial and $(QUICK)"
	$(BIN)/python -m pytest -rs -m "serial and $(QUICK)"

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -rs $(PARALLEL) -m "slow and not serial"
	$(BIN)/python -m pytest -rs -m "slow and serial"

# Every array method and the path on a device that is none of NumPy's: Intel's dpnp, whose OpenCL runtime takes a CPU for
# one. An environment of its own (3 GB), and a process for each method; all are run, whatever becomes of one.
test-device: DEVICE := $(VENV)-device
test-device:
	test -d $(DEVICE) || $(PYTHON) -m venv $(DEVICE)
	$(DEVICE)/bin/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt --editable '.[device]'
	@export OCL_ICD_FILENAMES=$(abspath $(DEVICE))/lib/libintelocl.so LD_LIBRARY_PATH=$(abspath $(DEVICE))/lib; \
	$(DEVICE)/bin/python -c 'from tests.solvers.on_device import NAMES; print(*NAMES)' | \
		xargs -n 1 -P 2 timeout 900 $(DEVICE)/bin/python -m tests.solvers.on_device dpnp

# In an empty environment away from the checkout, on every Python that is installed and supported.
wheel:
	.ci/wheel

# The first run on a machine with a GPU: all that needs one, written to gpu-acceptance.html and .json; exit code 0 if it
# is as it should be. `python -m tests.acceptance numpy` tries the program itself.
gpu-acceptance: $(VENV)/.installed-dev
	$(PIP) install --constraint constraints.txt --editable '.[dev,gpu]'
	$(BIN)/python -m tests.acceptance cupy

# Seeded schedules of crashes, losses and damage; COUNT=500 FIRST=0 make simulate for others.
simulate: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sweep.engine.simulation --count $(or $(COUNT),10000) --first $(or $(FIRST),0)

bench: $(VENV)/.installed-dev
	$(PIP) install --constraint constraints.txt --editable '.[dev,bench]'
	$(BIN)/python -m pytest -m bench -s tests/benchmarks

# Kills of workers, nodes and drivers while sweeps run; CHAOS_KILLS=200 make chaos for more drivers, CHAOS_SEED to repeat.
chaos: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m chaos -s

# The pictures of README and docs, photographed from a report of docs/examples.
pictures: $(VENV)/.installed-dev
	$(BIN)/python -m tests.pictures

cluster-test: $(VENV)/.installed-dev
	$(PIP) install --constraint constraints.txt --editable '.[dev,clusters]'
	$(BIN)/python -m pytest -m "not cluster" tests/clusters
	$(BIN)/python -m pytest -m cluster -s

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-device build *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "orthosweep needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The exact versions that the tests ran with; newer ones may work, these do.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing (a few minutes the first time) ..."
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

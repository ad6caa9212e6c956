# What a checkout needs: Python 3.11 or newer, and make. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME := hex-9x9-32
PROBLEM := instances/all-to-all/$(NAME).json
SCHEDULE := demo/$(NAME).schedule.json
# What runs compiled code, and is quick enough to run in several modes (tests/conftest.py says which).
KERNEL_TESTS := -m modes tests/solvers
# What is slow and seldom changes from one commit to the next, in the order in which CI has time for it: `make nightly`.
NIGHTLY := bounds python crosscheck names seldom wheels fresh-docs site attackers pictures caches bounds-of-all python-of-all rivals-of-all
export NIGHTLY
# Two processes; who has nothing left takes tests of the other, so neighbours share what they compile.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal -rs
# The tests start many processes, and each mode imports all tests: compile their modules once.
unexport PYTHONDONTWRITEBYTECODE

# Two test processes have two cores: threads of linear algebra would only wait for each other.
unit python bounds coverage soak: export OPENBLAS_NUM_THREADS := 1

# Where `make bench` writes its run.
RUN ?= build/bench/$(shell git rev-parse --short HEAD 2>/dev/null || echo run).json

# A stamp is older than these files when the requirements or the version may have changed.
METADATA := pyproject.toml optmatch/__init__.py
READY := $(VENV)/ready-to-run
READY_TO_TEST := $(VENV)/ready-to-test
READY_TO_SOAK := $(VENV)/ready-to-soak
READY_TO_BENCH := $(VENV)/ready-to-bench
READY_FOR_DOCS := $(VENV)/ready-for-docs
READY_TO_RELEASE := $(VENV)/ready-to-release

.PHONY: help same-python quick fresh demo docs test nightly $(NIGHTLY) release coverage soak fuzz rivals mutate lint unit bounds python kernels notebooks matrix bench clean

help:
	@echo "make demo   solve $(PROBLEM), verify it, draw it (in demo/)"
	@echo "make docs   build the site of pages, reference and notebooks (in build/site)"
	@echo "make quick  tests of the rooms that have changed, for the time between two edits (2 minutes at most)"
	@echo "make fresh  each target in a fresh clone of its own, before a release (TARGETS='docs demo' for some)"
	@echo "make test   all checks: style, types, imports, tests, notebooks"
	@echo "make nightly   what is slow: $(NIGHTLY) (SECONDS_LEFT=600 for what fits in)"
	@echo "make release   the files of a release and their checks, from a clean checkout; nothing is uploaded"
	@echo "make crosscheck   light and names of pins by sax, another simulator, which it installs"
	@echo "make coverage   the tests traced: which lines and branches they reach"
	@echo "make soak   tests of methods with ten times the problems (an hour)"
	@echo "make fuzz   MINUTES=10 of changed inputs of every format; what fails is kept in fuzz-failures/"
	@echo "make rivals QUESTION=collectives CELLS=300 SEED=0: problems in which a simple rival beats our solver"
	@echo "make mutate CHANGES=1000 SEED=0 of single lines of IN=optmatch/verify: lists those that no test notices"
	@echo "make matrix   smoke tests of a built wheel, on every Python here, newest and lowest versions"
	@echo "make bench  times beside those of other packages, as JSON, tables and a plot (RUN=$(RUN))"
	@echo "make clean  remove what these made"

# What pyenv puts on PATH may answer "command not found" only; Debian's python3 may lack venv.
RUNS = { $(PYTHON) -c 'import ensurepip, venv' >/dev/null 2>&1 || \
  { echo "PYTHON=$(PYTHON) does not run, or cannot make environments: give the path of one that does (PYTHON=/path/to/python)" >&2; exit 1; }; }

$(BIN)/python:
	@$(RUNS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)

# Who names a PYTHON gets that one: an environment of another is not used in its place.
same-python: | $(BIN)/python
	@test "$(origin PYTHON)" = file || { $(RUNS) && $(BIN)/python -c 'import sys; here = "%d.%d" % sys.version_info[:2]; \
	  sys.exit(here not in sys.argv[1:] and f"$(VENV) is of Python {here}: run `make clean` first, or leave PYTHON out")' \
	  $$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); }

# Modules are compiled when they are first imported: most of what is installed never is.
$(READY): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[plot]'
	@touch $@

$(READY_TO_TEST): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $(READY) $@

# What few tests need, and takes half a minute to install: a simulator of circuits, and Dask.
$(READY_TO_SOAK): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev,crosscheck,dask]'
	@touch $(READY) $(READY_TO_TEST) $@

$(READY_TO_BENCH): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $(READY) $@

$(READY_FOR_DOCS): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(READY) $@

$(READY_TO_RELEASE): $(METADATA) | same-python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

# Warnings are errors. The site needs no network, neither to be built nor to be read.
docs: $(READY_FOR_DOCS)
	$(BIN)/python docs/site.py
	@echo "site: build/site/index.html"

demo: $(READY)
	@mkdir -p demo
	$(BIN)/optmatch solve $(PROBLEM) --seed 0 --force -o $(SCHEDULE)
	$(BIN)/optmatch verify $(SCHEDULE)
	$(BIN)/optmatch plot $(SCHEDULE) --force -o demo/$(NAME).png
	$(BIN)/optmatch plot $(SCHEDULE) --slot 0 --force -o demo/$(NAME)-slot.png
	$(BIN)/optmatch plot $(SCHEDULE) --force -o demo/$(NAME).html
	@echo "schedule: $(SCHEDULE)"
	@echo "picture:  demo/$(NAME).png"
	@echo "viewer:   demo/$(NAME).html (open it in a browser)"

# Kernels are compiled while other checks run. The main run comes last, so that its closing line is what one sees; it
# has the notebooks too.
test: $(READY_TO_TEST)
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint kernels
	$(MAKE) --no-print-directory unit LESS='--closing-line notebooks tests'

nightly: $(READY_TO_TEST)
	@.ci/nightly $(or $(SECONDS_LEFT),86400) $(NIGHTLY)

# Pyright over all names, the editable install under both checkers, and pip.
names: $(READY_TO_TEST)
	OPTMATCH_EXAMPLES=2 $(BIN)/pytest -q -rs tests/test_typing.py tests/test_packaging.py

# All states of a mesh, collectives of a thousand ranks, 750 plans of rails, limits of large ones, tables that take seconds.
seldom: $(READY_TO_TEST)
	OPTMATCH_EXAMPLES=2 $(PYTEST) -q tests/fabrics/test_fabrics.py tests/test_papers.py tests/solvers/collectives/test_passing.py \
	  tests/solvers/collectives/test_skewed.py tests/solvers/collectives/test_topologies.py tests/solvers/rails/test_chords.py \
	  tests/solvers/rails/test_limits.py

# The site that `make docs` builds: its navigation, formulas and search.
site: $(READY_TO_TEST) $(READY_FOR_DOCS)
	OPTMATCH_EXAMPLES=2 $(BIN)/pytest -q tests/test_site.py

# More sizes of problems in every picture and page.
pictures: $(READY_TO_TEST)
	OPTMATCH_EXAMPLES=5 $(PYTEST) -q tests/plotting

# Kernel caches that are warm, empty, damaged, or in no place; each kind is solved on a fresh machine.
caches: $(READY_TO_TEST)
	OPTMATCH_EXAMPLES=5 $(BIN)/pytest -q tests/solvers/kernels tests/control/test_warming.py
	$(BIN)/python -m tests.helpers.cold_starts

# Forged answers, files that are changed by two mutators, wrong calls from Python.
attackers: $(READY_TO_TEST)
	$(BIN)/python -m tests.helpers.fuzzing $(or $(MINUTES),2)
	$(BIN)/python -m tests.helpers.forging 500 1
	$(BIN)/python -m tests.helpers.wrong_calls 500 1

bounds-of-all:
	@$(MAKE) --no-print-directory bounds KERNEL_TESTS='-m kernels tests/solvers'

python-of-all:
	@$(MAKE) --no-print-directory python KERNEL_TESTS='-m kernels tests/solvers'

# Cells of today in which a rival is better are printed; they fail nothing.
rivals-of-all: $(READY_TO_TEST)
	OPTMATCH_EXAMPLES=2 $(PYTEST) -q tests/rivals
	for question in demands collectives meshes rails; do $(BIN)/python -m tests.rivals $$question --cells $(or $(CELLS),40) || exit 1; done

fresh-docs:
	@.ci/fresh docs

wheels: matrix

# The rooms of the files that differ from the last commit; style first, since it takes a second.
quick: $(READY_TO_TEST)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.helpers.quick

# Nothing is uploaded; DRY=1 leaves out the tag, too.
release: $(READY_TO_RELEASE) $(READY_FOR_DOCS)
	@DRY=$(DRY) .ci/release

# Each target as somebody has it who has just cloned.
fresh:
	@.ci/fresh $(TARGETS)

# All tests again, traced, which takes twice the time: kernels are seen as plain Python. A floor, not an aim.
coverage: $(READY_TO_TEST)
	$(BIN)/coverage erase
	$(MAKE) --no-print-directory python unit COVER="--cov --cov-append --cov-report="
	$(BIN)/coverage report --fail-under=93

crosscheck: $(READY_TO_SOAK)
	$(BIN)/pytest -q -rs -k sax tests/optics tests/io/netlists

# What takes long by nature: many more problems for each test of the contract of methods.
soak: $(READY_TO_SOAK)
	OPTMATCH_EXAMPLES=10 $(PYTEST) -q tests/solvers tests/fabrics tests/io tests/problems tests/rivals tests/simulation tests/studies tests/verify/test_forged.py tests/verify/test_crashes.py tests/optics tests/verify/routing tests/sweeps/test_soak.py tests/sweeps/test_sweep.py tests/commands/test_signals.py tests/test_packaging.py tests/control

# Inputs that no run has had before: tests/io/test_fuzzing.py has the same few each time.
fuzz: $(READY_TO_TEST)
	$(BIN)/python -m tests.helpers.fuzzing $(or $(MINUTES),10)

# Simple plans that solvers have to equal: prints the cells in which a rival is over 1 % better.
rivals: $(READY_TO_TEST)
	$(BIN)/python -m tests.rivals $(or $(QUESTION),collectives) --cells $(or $(CELLS),300) $(if $(SEED),--seed $(SEED))

# Slow: about three seconds of a processor for each change, and once as long as the tests take.
mutate: $(READY_TO_TEST)
	$(BIN)/python -m tests.helpers.mutants $(or $(CHANGES),1000) $(or $(SEED),0) $(or $(IN),optmatch/verify)

lint: $(READY_TO_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	.ci/timed types $(BIN)/mypy
	.ci/timed imports $(BIN)/lint-imports

# As users run it, on two processes.
unit: $(READY_TO_TEST)
	.ci/timed unit $(PYTEST) --durations=30 $(COVER) $(LESS)

# Kernels check every index, so an access out of range fails instead of passing by luck. They have a
# cache of their own, since numba takes a cached kernel whether it checks or not.
bounds: export NUMBA_BOUNDSCHECK := 1
bounds: export NUMBA_CACHE_DIR := $(CURDIR)/$(VENV)/numba-bounds
bounds: $(READY_TO_TEST)
	.ci/timed bounds $(BIN)/pytest -q -rs $(KERNEL_TESTS)

# Kernels as plain Python: what they mean without a compiler.
python: export NUMBA_DISABLE_JIT := 1
python: $(READY_TO_TEST)
	.ci/timed python $(BIN)/pytest -q -rs --durations=10 $(COVER) $(KERNEL_TESTS)

# What both processes of `unit` would compile, each for itself, while other checks still run: kernels, and the modules
# of the tests, of which pytest keeps what it compiles. If one cannot be imported, `unit` says which.
kernels: $(READY_TO_TEST)
	.ci/timed kernels $(BIN)/python -c 'import optmatch; optmatch.warm_up(controllers=True)'
	.ci/timed modules sh -c '$(BIN)/pytest -qq --collect-only notebooks tests >/dev/null || true'

notebooks: $(READY_TO_TEST)
	$(BIN)/pytest -q notebooks

# One session of the matrix, as wheel-lowest.
wheel-%: $(READY_TO_TEST)
	$(BIN)/nox --reuse-existing-virtualenvs --session $*

# Environments and their kernels are kept in .nox/ for the next run.
matrix: $(READY_TO_TEST)
	$(BIN)/nox --reuse-existing-virtualenvs

# Times are of the processor, so that a busy machine changes them little.
bench: $(READY_TO_BENCH)
	@mkdir -p $(dir $(RUN))
	PYTHONPATH=.:benchmarks $(BIN)/pytest -q -p no:xdist -p no:cov benchmarks/bench_*.py --benchmark-quiet \
	  --benchmark-timer=time.process_time --benchmark-json=$(RUN)
	$(BIN)/python benchmarks/report.py $(RUN) -o $(RUN:.json=.png)

clean:
	rm -rf $(VENV) .nox demo build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

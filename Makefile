# Everything a contributor calls. Needs make and Python 3.11 or later; the rest is installed or built, after saying so.
#
#   PYTHON=python3.12   another interpreter for the environment (default: the first suitable one)
#   PREHEAT_CACHE=dir   where builds and downloads are kept (default: ~/.cache/preheat)
#   KEEP=1              make test and friends: leave the cluster up
#   ARGS="-k name"      more words for pytest
#   GPU_PYTHON, OUT     make gpu: the Python with a CUDA torch; a new folder for what was seen (default: build/gpu)

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
CACHE := $(or $(PREHEAT_CACHE),$(HOME)/.cache/preheat)
VERSION := $(shell $(PYTHON) -c 'import sys; print("{}.{}".format(*sys.version_info))' 2>/dev/null)
GPU_PYTHON := python3
VENV := $(CACHE)/venv-$(VERSION)-$(shell sha256sum requirements/dev.txt | cut -c1-16)
PY := $(VENV)/bin/python
SOURCES := $(CURDIR)/operator:$(CURDIR)/compiler_job:$(CURDIR)/tests
export PATH := $(VENV)/bin:$(PATH)
export PYTHONPATH := $(SOURCES)
# What was checked in one checkout is known in the next.
export MYPY_CACHE_DIR := $(CACHE)/mypy
LAB = $(PY) -m lab
# One of each minor version: each works, or is refused in words.
TORCH_VERSIONS := 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
# Those that images bring; each works, or it is said why it was not tried.
PYTHON_VERSIONS := 3.10 3.11 3.12 3.13 3.14
# Those that pyproject.toml names for the operator.
OPERATOR_PYTHONS := 3.11 3.12 3.13 3.14
# tests/conftest.py says which tests go together, and in which order.
WORKERS = -n $(1) --dist loadscope --no-loadscope-reorder
# What the C++ compiler was asked before, it need not do again: like all builds, its answers are kept in the cache.
QUICK_COMPILER := CCACHE_DIR=$(CACHE)/ccache CCACHE_MAXSIZE=2G CCACHE_BASEDIR=$(or $(TMPDIR),/tmp) CCACHE_NOHASHDIR=1 \
	PATH=/usr/lib/ccache:$$PATH

.DEFAULT_GOAL := help
.PHONY: help venv bytecode lint format lock unit unit-pythons test soak gpu bench cluster-up cluster-down cluster-status env images demo demo-down

help: ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# The file that says that an environment is complete; venv.py makes it last.
$(VENV)/.compiled:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later was found; say which: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@PYTHONPATH=tests $(PYTHON) -m lab venv >&2

venv: $(VENV)/.compiled ## the development environment, pinned and hashed
	@echo $(VENV)

# Where PYTHONDONTWRITEBYTECODE is set each of the hundreds of processes that tests start would compile what it imports.
bytecode: $(VENV)/.compiled
	@$(PY) -m compileall -q --invalidation-mode checked-hash operator compiler_job tests examples

lint: $(VENV)/.compiled ## style, types, layers, generated files
	ruff check .
	ruff format --check .
	mypy
	@# Users' images bring their own Python: the oldest and the newest, some of which no machine here has.
	mypy --python-version 3.10 compiler_job
	mypy --python-version 3.14 compiler_job
	MYPYPATH=tests mypy -p lab
	lint-imports
	$(PY) -m preheat_operator.api.crds --check

format: $(VENV)/.compiled ## put the code into shape
	ruff check --fix .
	ruff format .

lock: ## resolve requirements/*.txt anew from pyproject.toml
	PYTHONPATH=tests $(PYTHON) -m lab lock

unit: bytecode ## tests without a cluster and without compiling
	@# The chart's tests render it with Helm.
	@$(LAB) prepare helm
	pytest tests/unit -m "not cluster and not torch and not soak" $(ARGS)

unit-pythons: $(VENV)/.compiled ## make unit on each Python for the operator that is on this machine
	@failed=; for each in $(OPERATOR_PYTHONS); do \
		python=$$(PYTHONPATH=$(SOURCES):benchmarks $(PY) -c \
			'import sys; from python_versions import interpreter; print(interpreter(sys.argv[1]) or "")' $$each) || exit 1; \
		if [ -n "$$python" ]; then $(MAKE) PYTHON=$$python unit || failed="$$failed $$each"; \
		else echo "Python $$each is not on this machine: not tried"; fi; done; \
	if [ -n "$$failed" ]; then echo "failed with Python:$$failed" >&2; exit 1; fi

test: lint bytecode ## everything that gates a change, on a cluster made for it
	$(QUICK_COMPILER) $(LAB) --name test run --fresh -- pytest -m "not soak" --ignore=tests/cluster/lab/test_faults.py $(call WORKERS,3) $(ARGS)

# What was compiled for a test before (tests/kept.py) is compiled again.
# Two workers: the end-to-end tests mostly wait, so those of torch run beside them.
# tests/cluster/lab/test_faults.py stops the API server and the node, so nothing may run beside it.
# Takes hours, so what fails ends it only at the end.
soak: export PREHEAT_FRESH = 1
soak: bytecode ## the long tests in full, and those that break the cluster itself
	@# Those of tests/unit need the programs of a lab, too, and come first.
	@$(LAB) prepare
	@failed=; run() { echo "-> $$*"; "$$@" || failed="$$failed$$(printf '\n   %s' "$$*")"; }; \
	run pytest tests/unit --hypothesis-profile=soak $(call WORKERS,2) $(ARGS); \
	run $(MAKE) unit-pythons; \
	run $(LAB) --name soak run --fresh -- pytest -m "soak or matrix" $(call WORKERS,2) $(ARGS); \
	run $(LAB) --name soak run --fresh -- pytest tests/cluster/lab/test_faults.py $(ARGS); \
	run $(PY) benchmarks/torch_versions.py $(TORCH_VERSIONS); \
	run $(PY) benchmarks/python_versions.py $(PYTHON_VERSIONS); \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

# On a machine with a GPU, with that machine's own torch: no cluster, no network, and of our packages only pytest.
gpu: ## what a GPU says of what Preheat needs, and the acceptance tests on it
	PYTHONPATH= $(GPU_PYTHON) tests/gpu/spike.py --out $(or $(OUT),build/gpu)
	PYTHONPATH=build/gpu-tools $(GPU_PYTHON) -m pytest -c tests/gpu/pytest.ini tests/gpu $(ARGS)

bench: $(VENV)/.compiled ## measure and compare; fails on a missed target
	@$(LAB) prepare g++
	@# peers.py ends with 3 after its share of an hour and goes on when it is called again; it is bounded all the same.
	@missed=0; for each in import_cost first_answer regions checks peers load; do \
		for part in 1 2 3 4 5 6; do $(PY) benchmarks/$$each.py $(ARGS); rc=$$?; [ $$rc = 3 ] || break; done; \
		[ $$rc = 0 ] || missed=1; done; exit $$missed

cluster-up: $(VENV)/.compiled ## a cluster for debugging, with S3 and a registry
	@$(LAB) up

cluster-down: $(VENV)/.compiled ## take it away
	@$(LAB) down

cluster-status: $(VENV)/.compiled ## what of it runs
	@$(LAB) status

env: $(VENV)/.compiled ## exports for a shell; CONTRIBUTING.md shows how
	@$(LAB) env

images: $(VENV)/.compiled ## build and push the images of the product and the examples
	@$(LAB) images

demo: $(VENV)/.compiled ## what Preheat does, from nothing to a hot pod
	@$(LAB) --name demo demo

demo-down: $(VENV)/.compiled ## take the demo's cluster away
	@$(LAB) --name demo down

# Every target below makes .venv and installs what it needs, when that is missing or stale.
# When nothing changed, nothing is installed and the network is not touched.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadfile
# Of make sweeps and make fuzz: a new one each time, part of the command that make prints.
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))

VENV := .venv
PY := $(VENV)/bin/python
# What decides the contents of the environment.
INPUTS := pyproject.toml constraints.txt Makefile

# Asks for torchvision, which it does not use here and which may not fit this torch.
NO_DEPS := torchattacks==3.5.1

# Stamps, all inside .venv:
#   .made     the environment exists; holds the path it was made at
#   .inputs   checksums of INPUTS at the last install; absent while an install is unfinished
#   .has-SET  the extra SET is installed
# Those that cannot be trusted are dropped here, before make looks at them: the environment's
# python does not run, the folder was moved, INPUTS changed, or an install was cut short.
$(shell test -d $(VENV) || exit 0; exec 2>/dev/null; \
  { $(PY) -c 'import pip' && test "$$(cat $(VENV)/.made)" = "$$(pwd -P)"; } || rm -f $(VENV)/.made; \
  cksum $(INPUTS) | cmp -s - $(VENV)/.inputs || rm -f $(VENV)/.has-*)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo study test sweeps soak fuzz mutants wheel lowest check docs bench clean

help:
	@echo "make demo    train a robust classifier of digits, attack it and an ordinary one, certify it"
	@echo "make study   list the studies; measure one: make study NAME=toy ARGS='--scale full'"
	@echo "make test    run the tests and doctests; options: make test PYTEST_ARGS='-k name'"
	@echo "make sweeps  run the sweeps at full size, with a random seed; to repeat one: make sweeps SEED=..."
	@echo "make soak    attack, kill and mutate for an hour (SOAK_MINUTES=...); a second call continues"
	@echo "make fuzz    run the property tests on other and more examples, with a random seed"
	@echo "make mutants make mistakes in the trusted kernel, and see whether its tests notice"
	@echo "make wheel   build the wheel, install it alone without extras, and use it; then with them"
	@echo "make lowest  the same with the lowest versions that are supported"
	@echo "make check   lint, formatting, types and documentation: ruff, mypy, sphinx"
	@echo "make docs    build the documentation site into docs/_build, strictly and offline"
	@echo "make bench   measure results/benchmarks in 20 minutes; BENCH=full: run every script in benchmarks/"
	@echo "make clean   remove .venv, caches and build output"
	@echo
	@echo "The environment is made with '$(PYTHON)'; for another: make clean, then make test PYTHON=..."

demo: $(VENV)/.has-report
	@rm -rf demo/run
	$(VENV)/bin/certus train digits --epochs 20 --lr 0.004 -o demo/run
	@echo
	$(PY) examples/digits.py
	@echo
	$(VENV)/bin/certus certify demo/run --rho 0.001 --rho 0.01 --confidence 0.95 --local-radii 4
	@echo
	$(VENV)/bin/certus report demo/run -o demo/report.html

study: $(VENV)/.has-dev
	$(PY) -m studies $(NAME) $(ARGS)

test: $(VENV)/.has-dev
	$(PY) -m pytest $(PYTEST_ARGS)

sweeps: $(VENV)/.has-dev
	$(PY) -m pytest $(PYTEST_ARGS) --hypothesis-profile=fuzz --hypothesis-seed=$(SEED) -m soak

# One thread: what is forked must have no others. The extra bench brings ART.
soak: $(VENV)/.has-dev $(VENV)/.has-bench
	OMP_NUM_THREADS=1 $(PY) -m tools.soak

wheel lowest:
	PYTHON=$(PYTHON) tools/installed.sh build/$@ $(if $(filter lowest,$@),constraints-lowest.txt,constraints.txt)

fuzz: $(VENV)/.has-dev
	$(PY) -m pytest $(PYTEST_ARGS) --hypothesis-profile=fuzz --hypothesis-seed=$(SEED) -m 'hypothesis and not soak'

mutants: $(VENV)/.has-dev
	$(PY) -m tools.mutation record
	$(PY) -m tools.mutation run --seconds 2 $(MUTANTS_ARGS)
	$(PY) -m tools.mutation sort
	$(PY) -m tools.mutation again
	$(PY) -m tools.mutation list

check: $(VENV)/.has-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PY) -m sphinx -E -W --keep-going -q -b html docs docs/_build

docs: $(VENV)/.has-dev
	$(PY) -m sphinx -E -W --keep-going -b html docs docs/_build
	@echo "Open docs/_build/index.html"

bench: $(VENV)/.has-bench
	@set -e; for file in $(if $(filter full,$(BENCH)),benchmarks/[!_]*.py,benchmarks/page.py); do \
	  module=benchmarks.$$(basename "$$file" .py); \
	  echo "$(PY) -m $$module"; \
	  $(PY) -m "$$module"; \
	done

clean:
	rm -rf $(VENV) build dist docs/_api docs/_build docs/_results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests studies tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "error: '$(PYTHON)' not found; choose a Python 3.11 or newer: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed, '$(PYTHON)' is $$($(PYTHON) --version 2>&1); choose another: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: '$(PYTHON)' has no venv module; install it (Debian, Ubuntu: the package python3-venv)" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@pwd -P > $@

# Twice --quiet: pip's errors and nothing else. The extra dev contains the extra report.
$(VENV)/.has-report $(VENV)/.has-dev $(VENV)/.has-bench: $(VENV)/.has-%: $(VENV)/.made $(INPUTS)
	@echo "installing certus[$*] into $(VENV) (the first time can take some minutes)"
	@rm -f $(VENV)/.inputs
	@cksum $(INPUTS) > $(VENV)/.inputs.new
	@$(PY) -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@$(if $(filter dev bench,$*),$(PY) -m pip install --quiet --quiet --disable-pip-version-check --no-deps $(NO_DEPS))
	@touch $@ $(if $(filter dev,$*),$(VENV)/.has-report)
	@mv $(VENV)/.inputs.new $(VENV)/.inputs

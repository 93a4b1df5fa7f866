# One command each; every one sets up .venv first if that has not been done.
#   make test PYTHON=python3.12     set up with another Python
#   make test ARGS="-k flat"        ARGS go to pytest, or to code/main.py

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: demo test lab doctor bench check progress hint reset lessons help clean

demo: $(READY)      ## compare plain data parallelism with ZeRO, on four real processes
	@$(PY) code/main.py compare $(ARGS)

test: $(READY)      ## linter, formatter, all tests: about 10 minutes on 2 cores
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
	  tests/package tests/lessons

# Two halves side by side. pytest's exit code 5 says that ARGS have chosen no test in this half.
.PHONY: tests/package tests/lessons
tests/package tests/lessons: $(READY)
	$(PY) -m pytest $@ $(ARGS) || test $$? -eq 5

doctor:             ## can this machine do it? (5 seconds, installs nothing)
	@python=$(PY); test -x $$python || python=$(PYTHON); \
	$$python -I code/zero/doctor.py

bench: $(READY)     ## step times of DDP, ZeRO and torch's peers, in one interleaved run
	@$(PY) code/main.py bench $(ARGS)

# The course. EX names an exercise by its path in the package: make check EX=zero.flat.flatten_params

lab: $(READY)       ## open the lessons in JupyterLab
	@$(PY) -m jupyter lab --ServerApp.root_dir="$(CURDIR)" $(if $(filter 0,$(shell id -u)),--allow-root) $(firstword $(sort $(wildcard lessons/*.ipynb)))

check: $(READY)     ## grade one exercise, or all that were begun
	@$(PY) -m course check $(EX) || test $$? -eq 2 # not written yet: nothing has failed

progress: $(READY)  ## what is solved, what is open
	@$(PY) -m course progress

hint: $(READY)      ## a question, the idea, almost the code: N=1, 2, 3
	@$(PY) -m course hint $(EX) $(N)

reset: $(READY)     ## start an exercise again; a copy of yours is kept
	@$(PY) -m course reset $(EX)

lessons: $(READY)   ## for authors: build lessons/ and solutions/ from lessons/source
	@$(PY) -m course build

help:               ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*## /\t/' | expand -t 12

clean:              ## remove .venv and caches; your own files stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis code/*.egg-info
	find code tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up: done once, and again only when one of these two files changes.
$(READY): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found. Install Python 3.10 to 3.13, or name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "$(PYTHON) is `$(PYTHON) -V 2>&1`; this needs Python 3.10 to 3.13."; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make a virtual environment."; \
	  echo "On Debian and Ubuntu: apt install python3-venv. Elsewhere: install Python with its venv module."; \
	  exit 1; }
	@echo "Setting up $(VENV): a few minutes, once."
	@$(PY) -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

# v4sim: `make demo` shows what the project does, `make test` tests it. Both set up .venv by themselves.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
  && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SAMPLE := traces/v4traces/data/sample.parquet
DEMO_RUN := demo-run
GPU_PYTHON ?= python3
GPU_MINUTES ?= 4

# A venv that is half made, was moved with its checkout, or has lost its Python or its packages is made
# anew: it is whole only if it says that it was made for this folder and can import what was installed.
ifneq ($(shell $(BIN)/python -c 'import v4sim' >/dev/null 2>&1 && cat $(VENV)/.made-for 2>/dev/null),$(CURDIR))
STALE := stale
endif

.PHONY: help demo test check extras format bench backtest sample profiles picture gpu aot oracle clean stale
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.base ## replay the bundled sample trace and write its report
	@rm -rf $(DEMO_RUN)
	@$(BIN)/v4sim replay $(SAMPLE) --output $(DEMO_RUN) --check
	@echo "report: $(CURDIR)/$(DEMO_RUN)/report.html"

test: $(VENV)/.dev ## run the tests
	$(PYTEST)

check: $(VENV)/.dev ## what CI runs: format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

extras: $(VENV)/.extras ## install what the tests of kernels and published tables need; without, they skip

format: $(VENV)/.dev ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .bench-venv/.made $(if $(findstring --aisimulate,$(BENCH_ARGS)),.aisimulate-venv/.made) ## time whole processes on the public traces, compiled; writes bench/results.json (BENCH_ARGS=--help)
	.bench-venv/bin/python bench/run.py $(BENCH_ARGS)

sample: $(VENV)/.base ## make the bundled sample trace again, byte for byte
	$(BIN)/v4traces synth --sample

profiles: $(VENV)/.profiles ## make the built-in reference profiles again from the published kernel tables
	$(BIN)/v4calib import aiconfigurator --output sim/v4sim/profiles --force

backtest: $(VENV)/.base ## predict the published measurements again; writes docs/backtest.md
	$(BIN)/v4sim backtest --draws 40 --notes docs/backtest-notes.md --table docs/backtest.md --force

picture: demo ## take docs/report.png of the demo's report (needs chromium)
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1000 \
	  --disable-background-networking --screenshot=docs/report.png file://$(CURDIR)/$(DEMO_RUN)/report.html

# On a GPU node, with the Python that has its torch: no venv, nothing is installed, no other package is needed.
gpu: export PYTHONPATH := $(CURDIR)/calib:$(CURDIR)/kernels:$(CURDIR)/sim:$(CURDIR)/traces:$(CURDIR)/reports
gpu: ## on a GPU node: every kernel against its reference, then the quick grid into gpu.json (6 minutes)
	@$(GPU_PYTHON) -c 'import numpy, rich, scipy, torch, triton, typer' \
	  || { echo "a Python that has all of these is needed: GPU_PYTHON=..., or pip install 'v4sim[gpu]'" >&2; exit 2; }
	$(GPU_PYTHON) -m v4calib.cli doctor
	$(GPU_PYTHON) -m v4calib.cli verify
	$(GPU_PYTHON) -m v4calib.cli run --quick --minutes $(GPU_MINUTES) --force -o gpu.json

aot: $(VENV)/.extras ## compile every kernel configuration for sm_90, sm_100 and sm_103; rewrites the table
	$(BIN)/python -m v4kernels.aot --all

oracle: $(VENV)/.base .oracle-venv/.made ## ask SGLang's and vLLM's own schedulers again (3.4 GB, CPU only) and compare
	@cd tests/oracle && for engine in vllm sglang; do \
	  PYTHONPATH=.:../../sim:../../traces VLLM_LOGGING_LEVEL=ERROR \
	  ../../.oracle-venv/bin/python -W ignore -m oracle.record $$engine ../../../shared/data/weka/sessions.tar.xz recorded || exit; done
	@cd tests/oracle && for part in record_v4 record_layout record_pools record_narrow; do \
	  PYTHONPATH=.:../../sim:../../traces VLLM_LOGGING_LEVEL=ERROR \
	  ../../.oracle-venv/bin/python -W ignore -m oracle.$$part recorded || exit; done
	@cd tests/oracle && PYTHONPATH=.:../../sim:../../traces \
	  ../../.oracle-venv/bin/python -W ignore -m oracle.native_sglang
	@cd tests/oracle && PYTHONPATH=. $(CURDIR)/$(BIN)/python -m oracle.report recorded

clean: ## remove the venv, caches and the demo run
	rm -rf $(VENV) .bench-venv .aisimulate-venv $(DEMO_RUN) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: an install is repeated when what it depends on has changed, and never otherwise.
$(VENV)/.made-for: $(STALE)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found; install one, or: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "setting up $(VENV) with $(PYTHON)" >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a venv; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "$(CURDIR)" > $@

$(VENV)/.base: $(VENV)/.made-for pyproject.toml constraints.txt
	@echo "installing v4sim into $(VENV)" >&2
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(PIP) --editable '.[dev]'
	@touch $@

# The installed program, not this checkout: edits are seen by the next `make bench`.
.bench-venv/.made: pyproject.toml constraints.txt compile_hook.py $(shell find traces sim reports -name '*.py')
	@echo "installing v4sim, compiled, into .bench-venv" >&2
	@test -x .bench-venv/bin/python || $(PYTHON) -m venv .bench-venv
	@V4SIM_COMPILE=1 PIP_CONSTRAINT=constraints.txt .bench-venv/bin/python -m pip --disable-pip-version-check \
	  install --quiet .
	@touch $@

.aisimulate-venv/.made: bench/peer-requirements.txt
	@echo "installing AISimulate into .aisimulate-venv" >&2
	@$(PYTHON) -m venv --clear .aisimulate-venv
	@.aisimulate-venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement $<
	@touch $@

.oracle-venv/.made: tests/oracle/requirements.txt
	@echo "installing the engines into .oracle-venv" >&2
	@$(PYTHON) -m venv --clear .oracle-venv
	@.oracle-venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement $<
	@touch $@

$(VENV)/.profiles: $(VENV)/.base
	@$(PIP) --editable '.[aiconfigurator]'
	@touch $@

# The CPU build by name: plain `torch` would bring CUDA, several GB that no test here can use.
$(VENV)/.extras: $(VENV)/.dev $(VENV)/.profiles
	@$(PIP) 'torch==2.13.0+cpu' triton || echo "no CPU build of torch is to be had: tests of kernels are skipped" >&2
	@touch $@

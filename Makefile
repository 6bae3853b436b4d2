# Crisis Corpus. `make demo` and `make test` do their own set-up.
SHELL := /bin/bash
# a python3.11 that is present, else one that uv fetches: Debian 13 and Ubuntu 24.04 have no package of it
PYTHON ?= $(shell command -v python3.11 || { command -v uv >/dev/null && uv python install --quiet 3.11 && uv python find 3.11; } 2>/dev/null)
BIN := .venv/bin
export CORPUS_HOME ?= $(CURDIR)/var
export OMP_NUM_THREADS ?= 1
# every task is a process, which would compile the package again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo.cost annotate down test tiers test-croissant test-faults golden golden-all stages test-own bench docs lint size status setup lock audit sbom clean
help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

# Every lock is complete and has the hashes of its files, also of what builds the two that have no wheel: a file that was
# exchanged is refused, and nothing else is installed.
LOCKED = pip install --quiet --no-deps --require-hashes --build-constraints tools.lock
# torch comes from its makers' index alone, whose CPU builds torch.lock names (PyPI's brings gigabytes of CUDA libraries),
# or from pip's find-links if there is a wheel.
TORCH = $(if $(wildcard $(addsuffix /torch-*,$(PIP_FIND_LINKS))),--no-index --find-links "$(PIP_FIND_LINKS)",--default-index https://download.pytorch.org/whl/cpu)
.venv/.installed: tools.lock torch.lock requirements.lock pyproject.toml client/pyproject.toml sandbox/pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 is needed. Run: python3 -m venv ~/.uv && ~/.uv/bin/pip install --require-hashes -r tools.lock && ~/.uv/bin/uv python install 3.11, then: make PYTHON=\$$(~/.uv/bin/uv python find 3.11)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools.lock
	$(BIN)/uv $(LOCKED) --python $(BIN)/python $(TORCH) -r torch.lock
	$(BIN)/uv $(LOCKED) --python $(BIN)/python -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable client --editable . --editable sandbox
	$(BIN)/corpus compile
	@touch $@
# Beside the environment, because every import of peft would load it, which takes seconds.
.quantized/.installed: quantized.lock .venv/.installed
	$(BIN)/uv $(LOCKED) --python $(BIN)/python --target .quantized -r quantized.lock
	@touch $@
# What only tests, checks and benchmarks need.
.venv/.dev: dev.lock .venv/.installed
	$(BIN)/uv $(LOCKED) --python $(BIN)/python -r dev.lock
	@touch $@
setup: .venv/.installed  ## the environment alone
# Annotation servers pin other versions of what Airflow uses, so each lives in an environment of its own.
.%/.installed: %.lock .venv/.installed
	test -x .$*/bin/python || $(PYTHON) -m venv .$*
	$(BIN)/uv $(LOCKED) --compile-bytecode --python .$*/bin/python -r $<
	@touch $@

# need.COMMAND.PACKAGE: as root install it, else say the one line that does.
need.%:
	@want="$*"; cmd=$${want%%.*}; pkg=$${want#*.}; command -v $$cmd >/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$pkg >/dev/null; \
	  else echo "$$cmd is missing. Run: sudo apt-get install $$pkg"; exit 1; fi; }
# one after the other, because apt-get locks its database
need.bwrap.bubblewrap: need.tesseract.tesseract-ocr

demo: demo.cost .venv/.installed  ## two months of the offline Reddit, end to end, in a real Airflow
	@$(BIN)/corpus sandbox demo
demo.cost:
	@echo "The demo takes about 6 minutes on two cores, after the installation; both need 3.1 GB."
annotate: .label-studio/.installed  ## the annotation server, on loopback
	@$(BIN)/corpus annotate
down: .venv/.installed  ## stop what the demo and annotate started
	@$(BIN)/corpus down
status: .venv/.installed  ## the numbers of the last publish
	@$(BIN)/corpus status

docs: .venv/.installed .docs/.installed  ## draw docs/images/flow.svg, generate the reference and build site/, which needs no server
	$(BIN)/python docs/flow.py
	$(BIN)/python docs/reference.py
	.docs/bin/zensical build --strict

lint: .venv/.dev  ## ruff, mypy, the layers of pipelines/ and the declared requirements
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/deptry crisis_corpus --config client/pyproject.toml
	$(BIN)/deptry sandbox --config sandbox/pyproject.toml
	$(BIN)/python tests/size.py --check
size: .venv/.installed  ## lines of code, files, packages and words, beside their budgets
	@$(BIN)/python tests/size.py
test: .venv/.dev  ## everything but the slow tiers, the real Airflow included
	@$(MAKE) --no-print-directory need.bwrap.bubblewrap
	@$(MAKE) --no-print-directory --jobs 2 lint tiers
tiers: .venv/.dev
	@$(BIN)/python tests/tiers.py
test-croissant: .venv/.dev .croissant/.installed  ## MLCommons' mlcroissant on the Croissant of exported releases
	$(BIN)/python -m pytest -m faults tests/export/test_croissant.py
test-faults: .venv/.dev .label-studio/.installed .croissant/.installed .quantized/.installed need.bwrap.bubblewrap  ## kills, corruptions, all of Airflow and Label Studio; CORPUS_STRESS_SHARDS: how many disturbed runs
	$(BIN)/python -m pytest -m "faults or airflow"
stages: .venv/.installed  ## write dvc.yaml and pipelines/stages.yaml from the stages' modules, and rows.yaml
	$(BIN)/python docs/stages.py
	$(BIN)/python docs/libraries.py
	$(BIN)/python -m pipelines.core.rows
golden: .venv/.dev  ## compare commands, Dags and a small corpus with what is frozen in tests/golden
	@$(BIN)/python tests/golden/golden.py compare
golden-all: .venv/.dev  ## the same with the demo's corpora and both papers' profiles
	@$(BIN)/python tests/golden/golden.py compare all
test-own: .venv/.dev  ## the page "Your corpus" as printed, for texts and for pictures: from dumps to a loaded model
	$(BIN)/python -m pytest -m faults tests/own tests/notebook
# imagededup is measured against and never imported: without its own torch, outside the environment
bench: .venv/.dev need.zstd.zstd  ## measure, and render docs/log/performance.md
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target var/imagededup imagededup==0.3.3.post2
	PYTHONPATH=var/imagededup $(BIN)/python bench/run.py
lock: .venv/.installed  ## write the hashes of all pinned versions again, but torch's, and the versions that dvc.yaml names
	@for lock in $(filter-out torch.lock,$(wildcard *.lock docker/*.lock)); do \
	  $(BIN)/uv pip compile --quiet --no-deps --no-header --no-annotate --generate-hashes --python-version 3.11.9 $$lock -o $$lock || exit 1; done
	$(BIN)/python docs/libraries.py
audit: .audit/.installed  ## look the locked versions up among the known vulnerabilities
	@for lock in *.lock docker/*.lock; do echo $$lock; .audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r $$lock || bad=1; done; exit $$bad
sbom: .audit/.installed  ## write the software bill of materials, sbom.json (CycloneDX)
	.audit/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-file sbom.json requirements.lock
clean: down      ## remove var/ with the keys of all records: make clean CONFIRM=var
	@test "$(CONFIRM)" = var || { echo "This destroys var/ with the vault and its secret. Run: make clean CONFIRM=var"; exit 1; }
	rm -rf var

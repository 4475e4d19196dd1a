# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo demo-verl build/verl-cpu test test-all pyxis trainers fresh left-out lint images goldens schema figures docs dist pyz install install-demo clean
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Where this is set, each process of pytest compiles all tests again.
export PYTHONDONTWRITEBYTECODE :=
# More processes than cores, because many tests mostly wait. `make lint` runs tests/unit/test_templates.py.
TESTS := $(PYTEST) --dist loadscope --no-loadscope-reorder --ignore tests/unit/test_templates.py

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand --tabs=12

demo: install-demo ## run a job on two hosts of a real Slurm, with Podman and Ray, on this machine
	$(BIN)/slurmray rehearse examples/hello.yaml --build-image --runtime podman

demo-verl: build/verl-cpu ## train with verl on two hosts of a real Slurm, without GPUs (1.7 GB of packages)
	$(BIN)/slurmray rehearse examples/verl-cpu/job.yaml --build-image --runtime podman

build/verl-cpu: install-demo
	@examples/verl-cpu/fetch.sh $@ $(BIN)/python

test: lint images ## run lint, and all tests except those marked `full`
	$(TESTS) --numprocesses 4 -m "not full and not pyxis and not trainers"

test-all: lint images ## run lint and all tests except those marked `pyxis`, and update docs/inside/faults.md
	$(TESTS) --numprocesses 4 -m "not pyxis and not trainers"; code=$$?; $(BIN)/python docs/scripts/faults.py; exit $$code

pyxis: install ## run the tests with pyxis and enroot, which are cloned from GitHub and built
	$(TESTS) --numprocesses 2 -m pyxis; code=$$?; $(BIN)/python docs/scripts/faults.py; exit $$code

trainers: install build/verl-cpu ## run the tests with a real trainer (verl) on Podman and without containers
	$(PYTEST) --numprocesses 0 --capture no -m trainers tests/cluster/test_trainers.py

images: install ## build the images of most cluster tests, once
	@$(BIN)/python -m tests.cluster.prepare

fresh: install-demo ## run `make demo` and `make test` on a new Debian 12 and a new Debian 13 (as root; half an hour)
	@.ci/fresh

left-out: install ## list the tests that `make test` leaves out: of `make test-all`, of `make pyxis` and of `make trainers` only
	@$(PYTEST) --collect-only --quiet -m full || test $$? -eq 5
	@$(PYTEST) --collect-only --quiet -m "pyxis or trainers" || test $$? -eq 5

lint: install ## run ruff, mypy --strict, import-linter, vermin, codespell; shellcheck and shfmt on scripts and templates
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --target=3.6- slurmray/agent setup.py .ci/pyz_start.py
	$(PYTEST) --quiet --numprocesses 2 tests/unit/test_templates.py

goldens: install ## update tests/goldens
	rm -f tests/goldens/*.sh tests/goldens/*.settings tests/goldens/*.dstack.yml
	$(PYTEST) --quiet --write-goldens tests/unit/rendering/test_goldens.py tests/unit/rendering/dstack/test_task.py

schema: install ## update what docs/ prints from the code, and the JSON Schema
	$(BIN)/python docs/scripts/reference.py

figures: install ## measure the time until the trainer runs, compared with three other ways
	$(BIN)/python -m bench.boot
	$(BIN)/python -m bench.chart docs/inside/figures.md

docs: install ## build the documentation's site in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .ci/mkdocs.yml

dist: ## build and check the packages for PyPI in dist/
	@.ci/dist

pyz: ## build dist/slurmray.pyz: one file that runs with any Python from 3.10 to 3.15, without pip
	@python3 -m venv build/pyz && build/pyz/bin/python .ci/pyz.py dist/slurmray.pyz

install: ## install requirements of the tests: packages with apt-get, and .venv
	@.ci/install test

install-demo: ## install requirements of the demo only
	@.ci/install demo

clean: ## remove files of `make` and of jobs from this folder
	rm -rf .venv build dist *.egg-info generated.sh slurmray-runs slurm-*.out verl-cpu
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# `make help` lists what there is.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all fresh left-out lint images goldens schema figures install install-demo clean
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# More at a time than there are cores, as many wait for something. `make lint` runs those of the templates.
TESTS := $(PYTEST) --dist loadscope --no-loadscope-reorder --ignore tests/unit/test_templates.py

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand --tabs=12

demo: install-demo ## a job on two hosts of a real Slurm, with Podman and Ray, on this machine
	$(BIN)/slurmray rehearse examples/hello.yaml --build-image --runtime podman

test: lint images ## lint, and all tests but those marked `full`
	$(TESTS) --numprocesses 3 -m "not full"

test-all: lint images ## lint, all tests, and writes docs/faults.md again
	$(TESTS) --numprocesses 4; code=$$?; $(BIN)/python docs/faults.py; exit $$code

images: install ## what most cluster tests run on, made once
	@$(BIN)/python -m tests.cluster.prepare

fresh: install-demo ## `make demo` and `make test` as on new machines, a Debian 12 and a Debian 13 (as root; half an hour)
	@.ci/fresh

left-out: install ## the tests that `make test` leaves out; `make test-all` leaves out none
	@$(PYTEST) --collect-only --quiet -m full || test $$? -eq 5

lint: install ## ruff, mypy --strict, import-linter, vermin; shellcheck and shfmt on scripts and templates
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --target=3.6- slurmray/agent
	$(PYTEST) --quiet --numprocesses 2 tests/unit/test_templates.py

goldens: install ## write tests/goldens again
	rm -f tests/goldens/*.sh tests/goldens/*.settings tests/goldens/*.dstack.yml
	$(PYTEST) --quiet --write-goldens tests/unit/rendering/test_goldens.py tests/unit/rendering/test_dstack.py

schema: install ## write docs/job-spec.md and its JSON Schema again
	$(BIN)/python docs/reference.py

figures: install ## measure how long until the trainer runs, against three other ways
	$(BIN)/python -m bench.boot

install: ## what the tests need: packages, through apt-get, and .venv
	@.ci/install test

install-demo: ## the part of it that is for the demo
	@.ci/install demo

clean: ## remove what `make` and jobs left in this folder
	rm -rf .venv build dist *.egg-info generated.sh slurmray-runs slurm-*.out
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

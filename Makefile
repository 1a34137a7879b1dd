# The two commands are `make demo` and `make test`; everything they need is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NAME ?= demo

.PHONY: demo up down test lint env clean

demo: env  ## apply a model, chat with it, break a die, watch it heal (KEEP=1 leaves it up)
	@KEEP=$(or $(KEEP),0) $(BIN)/xdeepserve demo --name $(NAME)

up: env  ## a local cluster with the operator installed
	@$(BIN)/xdeepserve up --name $(NAME)

down: env  ## take it down
	@$(BIN)/xdeepserve cluster down --name $(NAME)

test: env  ## every test: unit, contract, integration, end to end
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --no-loadscope-reorder $(TESTS)

lint: env  ## style, types and layers alone
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@echo "installing into $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

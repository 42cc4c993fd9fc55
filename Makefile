# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Two processes: the tests mostly compile, which one process does on one core. The tests of a file share what was
# compiled, so they stay together.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test slow lint format bench docs clean

help:  ## show the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

# Installed once, and again when the project file changes.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "thiele needs Python 3.11 or newer; set PYTHON=...")'
	@echo "installing thiele and what it needs in $(VENV)/ (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable '.[all,dev]'
	@touch $@

demo: $(VENV)/installed  ## fit two real series, print what was learnt, draw them
	@$(BIN)/python -m thiele.demo

test: $(VENV)/installed  ## run the tests and the docstring examples
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

slow: $(VENV)/installed  ## run the tests that take long
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/installed  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/installed  ## put the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed  ## time exact inference beside celerite2, tinygp and smolgp
	$(BIN)/python -m benchmarks.gaussian

docs: $(VENV)/installed  ## build the site of the documentation in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site/index.html"

clean:  ## remove the environments and every cache
	rm -rf $(VENV) .bench-env build dist site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

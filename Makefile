# Two commands are enough: `make index` and `make test`. Each makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export HF_HUB_OFFLINE = 1

.PHONY: index test test-all lint ui clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# Everything from the shipped documents to the published index, through Dagster, and a question to it.
index: $(STAMP)
	$(BIN)/rag-pipeline index
	@echo
	$(BIN)/rag-pipeline search "May a battery pack that fell but shows no damage still be used?" --k 1

test: $(STAMP)
	$(BIN)/pytest -m "not slow"

test-all: $(STAMP)
	$(BIN)/pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/dagster definitions validate -m rag_pipeline.definitions

ui: $(STAMP)
	$(BIN)/rag-pipeline ui

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

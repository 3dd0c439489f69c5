# The commands themselves are in kvcourse/__main__.py and need no make: python3 -m kvcourse lab
# Options:  make lab ARGS="--no-browser --port 8900"     another Python:  make lab PYTHON=python3.12
PYTHON ?= python3

.PHONY: help lab test doctor model fuzz notebooks
help:
	@$(PYTHON) -m kvcourse --help

lab test doctor model:
	@$(PYTHON) -m kvcourse $@ $(ARGS)

# Random operations on every kind of cache, N sequences each; the seed is printed at the end.
fuzz:
	@KVCOURSE_FUZZ=$(or $(N),1000) $(PYTHON) -m kvcourse test tests/test_all_kinds.py $(ARGS)

# Run every lesson and solution again and store the outputs, after a change to the package.
notebooks:
	@$(PYTHON) -m kvcourse lab --prepare-only
	@.venv/bin/python tests/notebooks.py

# The commands themselves are in kvcourse/__main__.py and need no make: python3 -m kvcourse lab
# Options:  make lab ARGS="--no-browser --port 8900"     another Python:  make lab PYTHON=python3.12
PYTHON ?= python3

.PHONY: help lab test doctor model
help:
	@$(PYTHON) -m kvcourse --help

lab test doctor model:
	@$(PYTHON) -m kvcourse $@ $(ARGS)

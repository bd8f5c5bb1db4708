# `make demo` trains a small vision-language model and shows what changed; `make study` compares rewards over seeds;
# `make test` runs every check. All create the environment that they need in .venv.

PYTHON ?= python3
VENV ?= .venv
REWARD ?=
SEED ?= 0

BIN := $(VENV)/bin
CORE := .venv-core
INSTALLED := .venv-wheel
LOWEST := .venv-lowest
PROCESSES := .venv-processes
RELEASE := .venv-release
VLLM := .venv-vllm
TRAINERS := .venv-trainers
# Processes that share the tests. Those of a file stay together, as they share what is trained or drawn once.
WORKERS ?= logical
# Where pip finds torch. https://download.pytorch.org/whl/cpu has a build for processors, 4 GB smaller.
TORCH_INDEX ?=
SPREAD := --numprocesses $(WORKERS) --maxprocesses 8 --durations 20
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

# The rooms that must work with numpy and scipy alone.
CORE_TESTS := tests/test_boxes.py tests/test_overlap.py tests/test_matching.py tests/test_labels.py \
	tests/test_columns.py tests/test_layers.py tests/common/test_config_files.py tests/test_wheel.py tests/rewards tests/parsing

# What training overrides parts of, with the lowest versions.
LOWEST_TRAINING := -k "test_contract or test_adapter or test_run_folder" tests/training/test_contract.py \
	tests/training/test_resume.py tests/training/test_run.py

.PHONY: help demo demo-real study test lint test-core test-wheel test-lowest test-lowest-torch test-processes test-vllm test-trainers test-pythons test-all coverage docs bench lock audit sbom dist clean

help:
	@echo "make demo [REWARD=R1..R5|soft_f1]   train the small model with GRPO; the page is runs/demo/index.html"
	@echo "make demo-real IMAGES=path          the same on real radiographs with the boxes of both lungs"
	@echo "make study                          compare two rewards over three seeds, a quarter of an hour"
	@echo "make test [WORKERS=logical]         every check: lint, types, the core alone, all tests; a worker for each core"
	@echo "make test-lowest-torch              what training overrides, with the lowest torch too (5 GB more)"
	@echo "make test-processes                 DDP, FSDP2, ZeRO-2 and -3 in two processes on the processor, with DeepSpeed"
	@echo "make test-vllm                      GRPO with vLLM itself, on the processor (4 GB more)"
	@echo "make test-trainers                  two steps of GRPO by ms-swift and verl, on the processor (6 GB more)"
	@echo "make test-pythons                   the core alone on every supported Python that is installed"
	@echo "make coverage                       all tests once more, and which lines of the package they do not reach"
	@echo "make docs                           tables of commands, keys and datasets into docs/, and the site in build/site"
	@echo "make bench                          speed: text to reward, files, metrics, tables, the doctor"
	@echo "make lock | audit | sbom | dist     pins with hashes, known vulnerabilities, bill of materials, wheel and source"
	@echo "make clean                          remove the environments and what runs left behind"

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[train,dicom,eval,docs,dev]'
	touch $@

# What `make demo` needs, without what develops and documents.
$(VENV)/.train: pyproject.toml
	@echo "Installing PyTorch and what trains with it into $(VENV): 6.4 GB with CUDA, 4 GB less with"
	@echo "TORCH_INDEX=https://download.pytorch.org/whl/cpu. The demo then takes 8 to 11 minutes on one core."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet torch torchvision --index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --editable '.[train]'
	touch $@

# lmms-eval pins libraries that nothing here needs; these are what loading and running a task imports. It reaches into a
# module of filelock that version 4 no longer has.
$(VENV)/.lmms-eval: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet aiohttp evaluate 'filelock<4' loguru pytz sacrebleu tenacity
	$(BIN)/python -m pip install --quiet --no-deps 'lmms-eval>=0.7,<0.8'
	touch $@

# The core is tested as users get it: the built wheel, next to numpy, scipy and the test runner, and nothing else.
$(CORE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet --upgrade pip
	$(CORE)/bin/python -m pip install --quiet numpy scipy pytest pytest-xdist hypothesis
	touch $@

demo: $(VENV)/.train
	$(BIN)/grounding-rewards demo $(if $(REWARD),--reward $(REWARD)) --seed $(SEED)

# Images at random places, where a box that never looks earns little.
demo-real: $(VENV)/.train
	@test -d "$(IMAGES)" || { echo "Expected a folder with annotations.jsonl for IMAGES, got '$(IMAGES)'. See docs/training.md."; exit 2; }
	$(BIN)/python scripts/place_images.py $(IMAGES) runs/placed_images
	$(BIN)/grounding-rewards demo --config configs/demo/real_images.yaml --warm_start configs/demo/sft_real_images.yaml \
		--output_dir runs/real_images $(if $(REWARD),--reward $(REWARD)) --seed $(SEED)

study: export PYTHONWARNINGS := ignore::FutureWarning
study: $(VENV)/.train
	$(BIN)/grounding-rewards study configs/study/quick.yaml --out runs/study/quick --jobs 2

# The core needs little to be installed and is tested while the rest is.
test:
	$(MAKE) --jobs 2 lint test-core test-wheel test-lowest
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

# The lowest versions that pyproject.toml allows: of the core and the extra eval, and of what training overrides parts of,
# beside the newest of all others. httpx is what the lowest of them need and the newest do not.
$(LOWEST)/.installed: $(VENV)/.installed scripts/checks/lowest_versions.py
	$(PYTHON) -m venv $(LOWEST) && $(PYTHON) -m venv $(LOWEST)-train
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet $$($(BIN)/python scripts/checks/lowest_versions.py eval) pytest hypothesis
	$(BIN)/python -m pip --python $(LOWEST)-train install --quiet --no-deps \
		$$($(BIN)/python scripts/checks/lowest_versions.py train --only trl transformers accelerate peft datasets)
	$(BIN)/python -m pip --python $(LOWEST)-train install --quiet httpx
	mkdir -p build
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/lowest.pth
	mv build/lowest.pth "$$($(LOWEST)-train/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	touch $@

test-lowest: test-core $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pip install --quiet --no-deps --force-reinstall build/core/wheel/*.whl
	cd build/core && ../../$(LOWEST)/bin/python -m pytest -q -o addopts= tests/rewards/test_golden.py tests/test_boxes.py \
		tests/test_overlap.py tests/test_matching.py tests/test_wheel.py tests/metrics/test_average_precision.py \
		tests/metrics/test_comparison.py tests/metrics/test_evaluation.py tests/report/test_evaluation_page.py \
		tests/report/test_plots.py tests/report/test_comparison.py
	PYTHONPATH=. $(LOWEST)-train/bin/python -m pytest -q -o addopts= $(LOWEST_TRAINING)

# The lowest torch too: once a week and before a release, as it is 5 GB more.
test-lowest-torch: $(LOWEST)/.installed
	$(BIN)/python -m pip --python $(LOWEST)-train install --quiet $$($(BIN)/python scripts/checks/lowest_versions.py train --only torch torchvision)
	PYTHONPATH=. $(LOWEST)-train/bin/python -m pytest -q -o addopts= $(LOWEST_TRAINING)

# DeepSpeed, which is built here, beside the libraries of the other environment. A new environment may have a setuptools
# that is too old to build wheels.
$(PROCESSES)/.installed: $(VENV)/.installed
	$(PYTHON) -m venv $(PROCESSES)
	$(PROCESSES)/bin/python -m pip install --quiet --upgrade pip setuptools
	mkdir -p build
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/processes.pth
	mv build/processes.pth "$$($(PROCESSES)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	DS_BUILD_OPS=0 $(PROCESSES)/bin/python -m pip install --quiet --no-build-isolation deepspeed
	touch $@

# Once a week, as it takes minutes; and the tests that need DeepSpeed.
test-processes: $(PROCESSES)/.installed
	PYTHONPATH=. $(PROCESSES)/bin/python -m pytest -q -o addopts= tests/configs/test_engines.py
	PYTHONPATH=. $(PROCESSES)/bin/python scripts/checks/check_processes.py

# vLLM needs other versions of torch than the rest: an environment of its own. Once a week and before a release.
test-vllm: $(VENV)/.installed
	$(BIN)/python scripts/checks/check_vllm.py --environment $(VLLM)

# Other trainers with versions of their own: environments of their own. Once a week and before a release.
test-trainers: $(VENV)/.train
	$(BIN)/python scripts/checks/check_integrations.py --run --environments $(TRAINERS)

# Those that are installed under their usual names, such as python3.12; the others are passed over, and said.
test-pythons:
	@for version in 3.11 3.12 3.13 3.14; do \
		if command -v python$$version >/dev/null && python$$version -c "" 2>/dev/null; then \
			echo "Python $$version" && $(MAKE) --no-print-directory test-core PYTHON=python$$version CORE=.venv-core-$$version || exit 1; \
		else echo "Python $$version is not installed: passed over"; fi; \
	done

test-all: $(VENV)/.installed $(VENV)/.lmms-eval
	$(BIN)/python -m pytest -m "not untraced" $(SPREAD) --dist loadfile --no-loadscope-reorder $(TRACED)

# Which lines the tests reach; to know it slows them down by a quarter.
coverage: TRACED := --cov --cov-report=term:skip-covered
coverage: test-all

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.installed
	$(BIN)/python scripts/docs/write_tables.py
	$(BIN)/mkdocs build

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench_rewards.py
	$(BIN)/python benchmarks/bench_alone.py --page docs/trainers.md
	$(BIN)/python benchmarks/bench_scoring.py --page docs/scoring.md
	$(BIN)/python benchmarks/bench_doctor.py
	$(BIN)/python benchmarks/bench_evaluation.py
	$(BIN)/python benchmarks/bench_tables.py

$(RELEASE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --upgrade pip
	$(RELEASE)/bin/python -m pip install --quiet --editable '.[release]'
	touch $@

# For every supported Python and platform, with hashes, and without the address of any registry. vLLM pins versions of
# torch that nothing else here needs: TRL says which it takes.
LOCK = $(RELEASE)/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --upgrade \
	--custom-compile-command "make lock"
LOCKED := data dev dicom docs eval release tensorboard train
lock: $(RELEASE)/.installed
	$(LOCK) --output-file requirements-core.lock pyproject.toml
	$(LOCK) $(addprefix --extra ,$(LOCKED)) --output-file requirements.lock pyproject.toml

# What the service does not know was not looked up: by itself, pip-audit would call that clean.
audit: $(RELEASE)/.installed
	@$(RELEASE)/bin/pip-audit --strict --requirement requirements.lock --disable-pip --require-hashes --progress-spinner off \
		|| { echo "make audit: Expected every version of requirements.lock to be looked up and clean, got what stands above." \
			"\"could not be audited\": pypi.org was not reached, run it where it is; a vulnerability: make lock," \
			"or raise the range in pyproject.toml." >&2; exit 1; }

sbom: $(RELEASE)/.installed
	mkdir -p dist
	$(RELEASE)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
		--output-file dist/grounding_rewards.cdx.json

dist: $(RELEASE)/.installed
	rm -rf dist
	$(RELEASE)/bin/python -m build --outdir dist .

clean:
	rm -rf $(VENV) $(CORE) $(CORE)-3.* $(INSTALLED) $(LOWEST) $(LOWEST)-train $(PROCESSES) $(RELEASE) $(TRAINERS) $(VLLM) build dist runs .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

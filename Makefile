# Targets install what they need into .venv, with the exact versions of .constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := .bench/peers
OLDEST := build/oldest
AUDIT := build/audit
# Processes of one thread each: on small models, several threads per process are slower. One more than there are cores,
# because some tests wait.
PYTEST := -m pytest -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 5 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo pipeline student FORCE test browser test-browser soak plant oldest audit lint format coverage dist image bench bench-peers gpu speedrun ladder clean

help:  ## list all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED)  ## create .venv with nmt, its dependencies and the development tools

$(INSTALLED): pyproject.toml .constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmt needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c .constraints.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c .constraints.txt -e '.[dev]'
	touch $@

# `make demo` fails if BLEU is below the minimum, or if the translation of the sentence differs.
DEMO_MIN_BLEU := 90
DEMO_SENTENCE := 我昨天买了一本书。
DEMO_TRANSLATION := I bought a book yesterday.

demo: $(INSTALLED)  ## train Chinese to English on data/zh-en, translate and score: 3 minutes on two cores
	@$(MAKE) --no-print-directory pipeline CONFIG=configs/demo.yaml MIN_BLEU=$(DEMO_MIN_BLEU)
	@set -e; run=$$($(BIN)/nmt config run $(SETTINGS) --of configs/demo.yaml); \
	echo; paste -d '\n' data/zh-en/test.zh data/zh-en/test.en "$$run/test.hyp" /dev/null | sed -n '641,643p'; \
	found=$$($(BIN)/nmt translate -q -m "$$run" "$(DEMO_SENTENCE)"); \
	echo; echo '$(BIN)/nmt translate "$(DEMO_SENTENCE)"'; echo "$$found"; \
	test "$$found" = "$(DEMO_TRANSLATION)" || { \
	echo "make demo: error: the translation should be: $(DEMO_TRANSLATION)" >&2; exit 1; }; echo; \
	$(BIN)/nmt explain "$(DEMO_SENTENCE)" --reference "$(DEMO_TRANSLATION)" -m "$$run" -o "$$run/explanation.html"; \
	$(BIN)/nmt report "$$run"

# Settings for nmt from make's command line, as in `make pipeline train.max_steps=20`: `run`, and all names with a dot.
SETTINGS = $(foreach word,$(MAKEOVERRIDES),$(if $(findstring .,$(firstword $(subst =, ,$(word))))$(filter run=%,$(word)),$(word)))

pipeline: CONFIG ?= configs/demo.yaml
pipeline: $(INSTALLED)  ## tokenize, train, translate and score CONFIG; fail if BLEU is below MIN_BLEU
	$(BIN)/nmt tokenize $(CONFIG) $(SETTINGS)
	$(BIN)/nmt train $(CONFIG) $(SETTINGS)
	set -e; run=$$($(BIN)/nmt config run $(SETTINGS) --of $(CONFIG)); \
	src=$$($(BIN)/nmt config data.test.source $(SETTINGS) --of $(CONFIG)); \
	ref=$$($(BIN)/nmt config data.test.target $(SETTINGS) --of $(CONFIG)); \
	test -f "$$src" || { echo '$(CONFIG): data.test must name one source and one target file' >&2; exit 2; }; \
	$(BIN)/nmt translate --whole-lines -m "$$run" -i "$$src" -o "$$run/test.hyp"; \
	$(BIN)/nmt eval --hyp "$$run/test.hyp" --src "$$src" --ref "$$ref" > "$$run/test.scores"; \
	cat "$$run/test.scores"; \
	awk -v least='$(MIN_BLEU)' '$$1 == "BLEU" { bleu = $$3 } END { exit !(bleu + 0 >= least + 0) }' \
	"$$run/test.scores" || { echo '$(CONFIG): error: BLEU on test is below $(MIN_BLEU)' >&2; exit 1; }

# `make student`. Every step is a file, and a file that is there is not made again. What the teacher says is in RUN-text,
# for all of its students. The exports are in STUDENT-ct2 and, if CONFIG has "browser" in its name, in STUDENT-marian and
# STUDENT-site. STUDENT has the name of CONFIG.
RUN ?= runs/teacher
STUDENT ?= runs/$(or $(basename $(notdir $(CONFIG))),student)
override RUN := $(RUN:/=)
override STUDENT := $(STUDENT:/=)
override REVERSE := $(REVERSE:/=)
TEXT := $(RUN)-text
SAMPLED := $(TEXT)/sampled-$(notdir $(REVERSE)).source
SOURCES := $(TEXT)/train.source $(if $(REVERSE),$(SAMPLED))
TAUGHT := $(SOURCES:.source=.taught)
SITE := $(if $(findstring browser,$(CONFIG)),$(STUDENT)-marian/model.npz $(STUDENT)-site/node_modules/.package-lock.json)

student: CONFIG ?= configs/student.yaml
student: $(RUN)/model.safetensors $(STUDENT)-ct2/model.bin $(SITE)  ## teach CONFIG what RUN says, export it
	@echo; echo '$(BIN)/nmt translate --beam 1 -m $(STUDENT)-ct2 "…"'
	@$(if $(SITE),echo 'cd $(STUDENT)-site && python3 -m http.server')

%/model.safetensors:
	@echo "make student: error: $* is not a trained run; name one: make student RUN=runs/mine" >&2; exit 2

# The files of the teacher's corpora, and its languages. awk ends a last line that has no end.
$(TEXT)/settings: $(RUN)/model.safetensors | $(INSTALLED)
	@mkdir -p $(TEXT)
	@$(BIN)/nmt config data --of $(RUN)/config.yaml > $@.new
	@for key in train.target dev.source; do grep -q "^data\.$$key=[^-]" $@.new || { \
	echo "make student: error: $(RUN) has no data.$$key; a teacher has two texts, one direction and a dev set" >&2; exit 2; }; done
	@$(BIN)/nmt info $(RUN) | grep '^languages:' >> $@.new
	@mv $@.new $@

$(TEXT)/train.%: $(TEXT)/settings
	@set -e; for file in $$(sed -n 's/^data\.train\.$*=//p' $<); do \
	gzip -dcf "$$file" > $@.file; awk 1 $@.file; done > $@.new; rm $@.file; mv $@.new $@

# Languages that are not known are not compared: they are written as ''.
$(SAMPLED): $(TEXT)/train.target $(REVERSE)/model.safetensors
	@! $(BIN)/nmt info $(REVERSE) | grep -qxF "$$(grep "^languages: [^']*$$" $(TEXT)/settings || echo unknown)" || { \
	echo "make student: error: $(REVERSE) translates as $(RUN) does; REVERSE is a run of the other direction" >&2; exit 2; }
	$(BIN)/nmt translate --resume --sample --top-p 0.95 -m $(REVERSE) -i $< -o $@

$(TEXT)/%.taught: $(TEXT)/%.source $(RUN)/model.safetensors
	$(BIN)/nmt translate --resume -m $(RUN) -i $< -o $@

# `nmt train` goes on with a training, or says that it is finished. $(call CORPUS,dev) is the teacher's dev set as YAML.
comma := ,
LIST = [$(subst $() ,$(comma) ,$(strip $(1)))]
CORPUS = $$(sed -n '/^data\.$(1)\.[st].*=[^-]/ { s/ /, /g; s/^data\.$(1)\.\([a-z]*\)=\(.*\)/\1: [\2]/p; }' $(TEXT)/settings)
LANGUAGES = $$(sed -n 's/^languages: {source: \(.*\), target: \(.*\)}/data.source_lang=\1 data.target_lang=\2/p' $(TEXT)/settings)
.PRECIOUS: $(STUDENT)/model.safetensors
$(STUDENT)/model.safetensors: $(SOURCES) $(TAUGHT) FORCE
	@set -e; start=$$($(BIN)/nmt config train.init_from --of $(CONFIG)); test "$$start" = - || start=train.init_from=$(RUN); \
	$(BIN)/nmt train $(CONFIG) run=$(STUDENT) data.root=. "data.dev=$(call CORPUS,dev)" "data.test=$(call CORPUS,test)" \
	"data.train={source: $(call LIST,$(SOURCES)), target: $(call LIST,$(TAUGHT))}" $(LANGUAGES) $${start#-} $(SETTINGS)

$(STUDENT)-ct2/model.bin: $(STUDENT)/model.safetensors
	$(BIN)/nmt export -m $(STUDENT) --to ctranslate2 --quantization int8 --shortlist -o $(@D)

$(STUDENT)-marian/model.npz: $(STUDENT)/model.safetensors
	$(BIN)/nmt export -m $(STUDENT) --to marian -o $(@D)

$(STUDENT)-site/model.bin: $(STUDENT)/model.safetensors
	$(BIN)/nmt export -m $(STUDENT) --to browser -o $(@D)

# The engine. npm writes .package-lock.json last.
$(STUDENT)-site/node_modules/.package-lock.json: $(STUDENT)-site/model.bin
	@command -v npm > /dev/null || { echo 'make student: error: the page needs npm; install it, and repeat' >&2; exit 2; }
	cd $(STUDENT)-site && npm ci

test: $(INSTALLED)  ## run the tests
	$(BIN)/python $(PYTEST)

browser: $(INSTALLED)  ## install Chromium and what drives it, for the tests of the pages
	$(BIN)/pip install -q --disable-pip-version-check -c .constraints.txt -e '.[browser]'
	command -v chromium || command -v google-chrome || apt-get install -y -q chromium fonts-noto-cjk

test-browser: browser  ## run the tests of the pages in Chromium
	$(BIN)/python -m pytest tests/insight/test_browser.py tests/serve/test_page.py tests/interchange/test_bergamot.py

SOAK = tests/reliability tests/test_distributed.py tests/test_processes.py tests/decode/test_search_random.py tests/serve/test_server.py tests/serve/test_models.py \
	tests/corpus/test_repair.py tests/corpus/test_split.py
soak: $(INSTALLED)  ## run the fault injection and the comparison of search with its reference in full, or SOAK="FILES"
	NMT_SOAK=1 $(BIN)/python $(PYTEST) $(SOAK)

plant: $(INSTALLED)  ## plant a fault for each attack of tests/reliability, one after the other, and see it found
	$(BIN)/python tests/reliability/plant.py $(PLANT)

# `pytest` tests the installed package; `python -m pytest` would import nmt/ from here. -W default: warnings of old
# libraries are not errors.
oldest:  ## run the quick tests with the oldest dependencies that pyproject.toml allows (torch excepted)
	rm -rf build
	$(PYTHON) -m venv $(OLDEST)
	grep -E '^(torch|pytest|pytest-xdist|hypothesis)==' .constraints.txt > $(OLDEST)/constraints.txt
	$(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		extras = project["optional-dependencies"]; \
		print(*project["dependencies"], *extras["documents"], *extras["serve"], sep="\n")' \
		| grep -v '^torch' | sed 's/>=/==/; s/\[.*\]//' | tee -a $(OLDEST)/constraints.txt
	$(OLDEST)/bin/pip install -q --disable-pip-version-check -c $(OLDEST)/constraints.txt torch
	$(OLDEST)/bin/pip install -q --disable-pip-version-check -c $(OLDEST)/constraints.txt \
		'.[documents,serve]' libretranslatepy pytest pytest-xdist hypothesis
	$(OLDEST)/bin/pytest -n auto --maxprocesses 4 --dist worksteal -W default \
		--ignore tests/reliability --ignore tests/benchmarks --ignore tests/data --ignore tests/test_readme.py

# Some mirrors of PyPI serve packages but no vulnerability data.
audit:  ## look for unsafe settings in the workflow file, and for known vulnerabilities in the pinned versions
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install -q --disable-pip-version-check zizmor==1.32.0
	$(AUDIT)/bin/zizmor -q --offline .github/workflows
	@if $(PYTHON) -c 'import urllib.request as r; r.urlopen("https://pypi.org/pypi/numpy/2.4.6/json", timeout=20)' \
		2> /dev/null; then $(AUDIT)/bin/pip install -q --disable-pip-version-check pip-audit==2.10.1 \
		&& $(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip -r .constraints.txt; \
	else echo "audit: PyPI's vulnerability data cannot be reached: THE PINNED VERSIONS WERE NOT CHECKED"; fi

lint: $(INSTALLED)  ## check format, style, types and imports between packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## format the code and fix style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(INSTALLED)  ## run the tests and show the branches of nmt/ that they do not reach
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

DIST := build/dist

dist:  ## build a wheel into dist/; install it into a fresh environment, and train and translate with it there
	rm -rf build dist
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip wheel -q --disable-pip-version-check --no-deps -w dist .
	$(DIST)/bin/pip install -q --disable-pip-version-check -c .constraints.txt torch
	$(DIST)/bin/pip install -q --disable-pip-version-check -c .constraints.txt dist/*.whl
	mkdir $(DIST)/demo
	cp -r data configs/demo.yaml $(DIST)/demo
	cd $(DIST)/demo && ../bin/nmt train demo.yaml train.max_steps=100 && ../bin/nmt translate "$(DEMO_SENTENCE)" && ../bin/nmt eval

image:  ## build the container image `nmt`, which runs nmt serve; needs docker
	docker build -t nmt -f configs/docker/Dockerfile .

bench: $(INSTALLED)  ## compare speed with plain PyTorch and CTranslate2 (BENCH="NAME… --help")
	$(BIN)/python tests/benchmarks/bench.py $(BENCH)

bench-peers: $(INSTALLED) $(PEERS)/.installed  ## also compare speed with Hugging Face, JoeyNMT and Marian
	$(BIN)/python tests/benchmarks/bench.py --peers $(PEERS)/bin/python $(BENCH)

gpu: $(INSTALLED)  ## measure the speed of training on a GPU (GPU="--help")
	$(BIN)/python tests/benchmarks/gpu.py $(GPU)

speedrun: $(INSTALLED)  ## compare the CPU time of the recipes with that of an older commit (SPEEDRUN="--help")
	$(BIN)/python tests/benchmarks/speedrun.py $(SPEEDRUN)

ladder: $(INSTALLED)  ## train and compare the models of configs/ladder
	$(BIN)/python tests/benchmarks/ladder.py $(LADDER)

# torch is installed first, to fix its version. JoeyNMT also needs importlib_metadata and an older sentencepiece, but
# does not declare them.
$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q --disable-pip-version-check torch==2.13.0
	$(PEERS)/bin/pip install -q --disable-pip-version-check torch==2.13.0 \
		transformers==5.23.0 joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0 pymarian==1.12.42
	touch $@

clean:  ## remove .venv and caches, but not runs/
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each target sets up what it needs: .venv with the exact versions of .constraints.txt.
PYTHON ?= python3
CONFIG ?= configs/demo.yaml
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := .bench/peers
OLDEST := build/oldest
AUDIT := build/audit
# A process a core, each with one thread: threads that wait for one another are the slower way on small models.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo pipeline test soak oldest audit lint format coverage bench bench-peers ladder clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED)  ## .venv with nmt, its libraries and the tools of development

$(INSTALLED): pyproject.toml .constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmt needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c .constraints.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c .constraints.txt -e '.[dev]'
	touch $@

# `make demo` fails below this BLEU, and when it does not translate this sentence exactly.
DEMO_MIN_BLEU := 90
DEMO_SENTENCE := 我昨天买了一本书。
DEMO_TRANSLATION := I bought a book yesterday.

demo: $(INSTALLED)  ## train Chinese to English on data/zh-en, translate, score: 4 minutes on two cores
	@$(MAKE) --no-print-directory pipeline CONFIG=configs/demo.yaml MIN_BLEU=$(DEMO_MIN_BLEU)
	@set -e; run=$$($(BIN)/nmt config run --of configs/demo.yaml); \
	found=$$($(BIN)/nmt translate -q -m "$$run" "$(DEMO_SENTENCE)"); \
	echo; echo '$(BIN)/nmt translate "$(DEMO_SENTENCE)"'; echo "$$found"; \
	test "$$found" = "$(DEMO_TRANSLATION)" || { \
	echo "make demo: error: the translation should be: $(DEMO_TRANSLATION)" >&2; exit 1; }

pipeline: $(INSTALLED)  ## tokenize, train, translate and eval a CONFIG; fail below MIN_BLEU
	$(BIN)/nmt tokenize $(CONFIG)
	$(BIN)/nmt train $(CONFIG)
	set -e; run=$$($(BIN)/nmt config run --of $(CONFIG)); \
	src=$$($(BIN)/nmt config data.test.source --of $(CONFIG)); \
	ref=$$($(BIN)/nmt config data.test.target --of $(CONFIG)); \
	test -f "$$src" || { echo '$(CONFIG): data.test must name one source and one target file' >&2; exit 2; }; \
	$(BIN)/nmt translate -m "$$run" -i "$$src" -o "$$run/test.hyp"; \
	$(BIN)/nmt eval --hyp "$$run/test.hyp" --src "$$src" --ref "$$ref" --show 5 > "$$run/test.scores"; \
	cat "$$run/test.scores"; \
	awk -v least='$(MIN_BLEU)' '$$1 == "BLEU" { bleu = $$3 } END { exit !(bleu + 0 >= least + 0) }' \
	"$$run/test.scores" || { echo '$(CONFIG): error: BLEU on test is below $(MIN_BLEU)' >&2; exit 1; }

test: $(INSTALLED)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

soak: $(INSTALLED)  ## run tests/reliability and the comparison of search with its reference in full
	NMT_SOAK=1 OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) tests/reliability tests/decode/test_search_random.py

# Not from here but as installed, which `-m pytest` would not see. Old libraries warn of newer Pythons.
oldest:  ## install nmt with the oldest versions that pyproject.toml allows (torch apart) and run the quick tests
	rm -rf build
	$(PYTHON) -m venv $(OLDEST)
	grep -E '^(torch|pytest|pytest-xdist|hypothesis)==' .constraints.txt > $(OLDEST)/constraints.txt
	$(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["dependencies"], *project["optional-dependencies"]["ctranslate2"], sep="\n")' \
		| grep -v '^torch' | sed 's/>=/==/' | tee -a $(OLDEST)/constraints.txt
	$(OLDEST)/bin/pip install -q --disable-pip-version-check -c $(OLDEST)/constraints.txt torch
	$(OLDEST)/bin/pip install -q --disable-pip-version-check -c $(OLDEST)/constraints.txt \
		'.[ctranslate2]' pytest pytest-xdist hypothesis
	OMP_NUM_THREADS=1 $(OLDEST)/bin/pytest -n auto --maxprocesses 4 --dist worksteal -W default \
		--ignore tests/reliability --ignore tests/benchmarks --ignore tests/data

# Some mirrors of PyPI serve packages, but not what is known of them.
audit:  ## look for known holes in the versions of .constraints.txt, where PyPI can be asked
	@if $(PYTHON) -c 'import urllib.request as r; r.urlopen("https://pypi.org/pypi/numpy/2.4.6/json", timeout=20)' \
		2> /dev/null; then $(PYTHON) -m venv $(AUDIT) \
		&& $(AUDIT)/bin/pip install -q --disable-pip-version-check pip-audit==2.10.1 \
		&& $(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip -r .constraints.txt; \
	else echo 'audit: PyPI cannot be asked for known holes from here: NOTHING WAS CHECKED'; fi

lint: $(INSTALLED)  ## check format, lint, types and which room imports which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(INSTALLED)  ## run the tests and show which branches of nmt/ they do not reach
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

bench: $(INSTALLED)  ## measure speed beside plain PyTorch and CTranslate2 (BENCH="NAME… --help")
	$(BIN)/python tests/benchmarks/bench.py $(BENCH)

bench-peers: $(INSTALLED) $(PEERS)/.installed  ## the same beside Hugging Face and JoeyNMT too
	$(BIN)/python tests/benchmarks/bench.py --peers $(PEERS)/bin/python $(BENCH)

ladder: $(INSTALLED)  ## train and compare the models that led to the Transformer: configs/ladder/README.md
	$(BIN)/python tests/benchmarks/ladder.py $(LADDER)

# torch first, or they bring another. JoeyNMT needs importlib_metadata and an older sentencepiece, and does not say so.
$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q --disable-pip-version-check torch==2.13.0
	$(PEERS)/bin/pip install -q --disable-pip-version-check torch==2.13.0 \
		transformers==5.23.0 joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0
	touch $@

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

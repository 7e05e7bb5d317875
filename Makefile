# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv first.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SETUP := .venv/.installed

CHECK := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
WORKERS ?= logical
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist loadgroup --no-loadscope-reorder
# Tests start hundreds of Python processes: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Marks of the tests that `make test` leaves out. The tests on a Spark cluster run by themselves: beside other tests they
# take longer than their own limits.
REST := rabbitmq or lab or remote or drives or clients or slow

.PHONY: demo test test-rest test-all hunt check sim fuzz storm damage partitions bench bench-pipeline profile round spark-cluster-test setup docs clean help

demo: $(SETUP)  ## an in-flight sweep over a three-node quorum queue, and its report
	@$(BIN)/perftest sweep flow_control/in_flight --quick --report

test: $(SETUP)  ## what a change can break: ruff and mypy --strict beside pytest; ARGS=PATH runs a part
	@told=$$(mktemp); { $(CHECK); } >$$told 2>&1 & check=$$!; \
	$(PYTEST) -m "not ($(REST) or spark_cluster)" $(ARGS); tests=$$?; \
	wait $$check; checked=$$?; cat $$told; rm -f $$told; [ $$tests -eq 0 ] && exit $$checked; exit $$tests

# Labs, drives and other hosts wait more than they compute: one worker for them, and one for each core.
test-rest: WORKERS = 3
test-rest: $(SETUP)  ## what `make test` leaves out: RabbitMQ beside us, labs, drives, other clients, many examples; ARGS
	$(PYTEST) -m "($(REST) or hypothesis or seeds or sampled) and not spark_cluster" --hypothesis-profile=many $(ARGS)

test-all:  ## `make test` and all the rest, also reports on a Spark cluster
	$(MAKE) test
	$(MAKE) test-rest
	$(MAKE) spark-cluster-test

hunt: $(SETUP)  ## a night of generated cases: thousands of new examples, ten times the seeds, every sample; ARGS=PATH
	$(PYTEST) -m "hypothesis or seeds or sampled" --hypothesis-profile=hunt $(ARGS)

check: $(SETUP)  ## ruff and mypy --strict
	$(CHECK)

sim: $(SETUP)  ## the cluster in a seeded world: SEED=n replays one (PAGE=world.html draws it: FROM, TO, EVENTS=world.jsonl), SEEDS=n or MINUTES=n runs many; STEPS, JOBS
	$(BIN)/python -m reference_broker.sim --jobs $(or $(JOBS),$(shell nproc 2>/dev/null || echo 2)) \
		$(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(STEPS),--steps $(STEPS)) $(if $(FIRST),--first $(FIRST)) \
		$(if $(PAGE),--page "$(PAGE)") $(if $(EVENTS),--events "$(EVENTS)") $(if $(FROM),--from $(FROM)) $(if $(TO),--to $(TO))

fuzz: $(SETUP)  ## hostile conversations against the broker's connections: INPUTS=n, SEED=n replays a search
	$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))

storm: $(SETUP)  ## kill -9 of nodes in turn under load, with a checker that knows only AMQP; KILLS=50 SEED=20
	STORM_KILLS=$(or $(KILLS),50) STORM_SEED=$(or $(SEED),20) $(BIN)/pytest -s tests/integration/test_kill_storm.py

damage: $(SETUP)  ## damaged files, and every message accounted for: CASES=n, SEED=n; CASE=n KEEP=1 replays one; NODES, FILES, FIRST
	$(BIN)/python -m tests.damage $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) $(if $(CASE),--case $(CASE)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(NODES),--nodes $(NODES)) $(if $(FILES),--files "$(FILES)") \
		$(if $(KEEP),--keep damage-findings)

partitions: $(SETUP)  ## links between nodes cut under load, as root: CUTS=n, SEED=n; CUT=n makes one; FIRST
	$(BIN)/python -m tests.partitions $(if $(CUTS),--cuts $(CUTS)) $(if $(SEED),--seed $(SEED)) $(if $(CUT),--cut $(CUT)) \
		$(if $(FIRST),--first $(FIRST))

bench: $(SETUP)  ## every speed budget, beside RabbitMQ where it is installed; ARGS="--quick", "--only idle", "--json FILE"
	$(BIN)/python -m tests.bench $(ARGS)

bench-pipeline: $(SETUP)  ## what reports cost, beside plain loops on the same data; ARGS="--only small", "--scale 0.1"
	$(BIN)/python -m tests.bench.pipeline $(ARGS)

profile: $(SETUP)  ## where the nodes' time goes, by part of the broker; ARGS="--in-flight 20", "--markdown"
	$(BIN)/python -m tests.bench.profile $(ARGS)

round: $(SETUP)  ## wake-ups, frames, syncs, system calls and calls of functions per message; ARGS="--load 'rate 1000'"
	$(BIN)/python -m tests.bench.round $(ARGS)

spark-cluster-test: $(SETUP)  ## reports on a Spark cluster: a master and two workers on the loopback
	$(BIN)/pytest -m spark_cluster tests/reports/pipeline/test_spark_cluster.py

docs: $(SETUP)  ## the documentation as a site in build/docs, to be read from its files or over HTTP
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@rm -rf build/pages build/docs && mkdir -p build/pages
	@cp -r --parents README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE docs workloads/README.md build/pages
	$(BIN)/python -m reference_broker.sim.scenes build/pages/docs/worlds
	$(BIN)/python -m reference_broker.worldpage docs/local-delivery.md build/pages/docs/worlds
	$(BIN)/zensical build --strict
	@echo "open build/docs/index.html"

setup: $(SETUP)  ## create .venv and install everything

$(SETUP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python >= 3.11 found"; echo "  at   PATH"; echo "  fix  install one, or name it: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	@echo "setting up .venv with $(PYTHON) (once; PySpark alone is some 450 MB)"
	@$(PYTHON) -m venv .venv || { echo "error: cannot create a virtual environment"; echo "  at   .venv, with $(PYTHON)"; echo "  fix  install the venv module (Debian: apt-get install python3-venv)"; exit 2; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(SETUP)

clean:  ## remove .venv and caches; runs/ stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

# Needs make and Python 3.11 or newer, nothing else: goals that need Python make .venv first, with the versions
# of requirements.lock. ARGS are handed on: make test ARGS="-k session", make demo ARGS="--input DIR".
# A first `make test PYTHON=python3.12` chooses the Python of .venv.

VENV := .venv
export PYTHON

# How long `make strangers` takes.
MINUTES := 10

# What `make readers` fuzzes, each for READER_SECONDS.
READERS := xml activex binary headers decode
READER_SECONDS := 600

# A .venv with everything serves as well: `demo` makes the smaller one only where there is none.
DEV := $(VENV)/.dev
DEMO := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.simulator)

# One process more than there are cores (tests/conftest.py), as tests wait a lot; each runs whole files of tests, in the
# order of the alphabet: by it, short ones come last.
# ARGS="-n 0" keeps them in one process, where what a test prints can be watched (-s); --pdb does so by itself.
TESTS := $(VENV)/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo crash kills lives meeting producers standby programs validate backlogs powerloss hurt strangers readers requests console letter mutants test core wheel dist plants truth rotation wine bodies codec coverage docs lint format bench samples pictures lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO)  ## three queue managers, a broken link, a killed node; proof at the end
	@$(VENV)/bin/mqproto demo $(ARGS)

crash: $(DEMO)  ## ten minutes of killed nodes; proof at the end; ARGS="--minutes 1 --seed 7", ARGS=--keys
	@$(VENV)/bin/mqproto crash $(ARGS)

kills: $(DEV)  ## a client killed 200 times while it sends and receives 1,000 messages; some minutes
	@MQPROTO_CLIENT_KILLS=200 $(VENV)/bin/python -m pytest tests/simulator/client/test_submission.py $(ARGS)

lives: $(DEV)  ## a node killed 1,000 times while it starts and runs: none of them may look like a store that was put back; about ten minutes
	@MQPROTO_LIFE_KILLS=1000 $(VENV)/bin/python -m pytest -n 0 -rP tests/simulator/node/test_restored.py -k only_killed $(ARGS)

meeting: $(DEV)  ## two nodes that know nothing of each other, one of which may not be called, killed 200 times; half an hour
	@MQPROTO_MEETING_KILLS=200 $(VENV)/bin/python -m pytest -n 0 tests/simulator/node/test_meeting.py -k killed $(ARGS)

producers: $(DEV)  ## producers who retry and hang up while two gateways and a node are killed, 40 times on each database; about four minutes
	@MQPROTO_GATEWAY_KILLS=40 $(VENV)/bin/python -m pytest tests/simulator/edges/gateway/test_run.py -k killed $(ARGS)

standby: $(DEV)  ## two triggers on one queue, killed, stopped and continued 200 times: who leads, and is anything called twice? about four minutes
	@MQPROTO_STANDBY_STRIKES=200 $(VENV)/bin/python -m pytest -n 0 tests/simulator/edges/trigger/test_standby.py -k whoever --timeout 1800 $(ARGS)

programs: $(DEV)  ## the three programs of program-that-may-be-killed.md, each killed 100 times; some minutes
	@MQPROTO_PROGRAM_KILLS=100 $(VENV)/bin/python -m pytest -n 0 tests/simulator/client/test_programs.py $(ARGS)

validate: $(DEMO)  ## a producer, a gateway, nodes, a trigger, and a consumer that fails on cue: each stage counted
	@$(VENV)/bin/mqproto validate $(ARGS)

backlogs: $(DEV)  ## 600 messages of mixed sizes wait, in 20 ways of each kind, and are received late; 20 minutes
	@MQPROTO_BACKLOG_SEEDS=20 $(VENV)/bin/python -m pytest tests/simulator/node/test_backlogs.py $(ARGS)

powerloss: $(DEV)  ## the store after a power loss at every one of its writes; some minutes, needs strace
	@MQPROTO_POWERLOSS_PERCENT=100 $(VENV)/bin/python -m pytest -rP tests/simulator/storage/test_powerloss.py $(ARGS)

hurt: $(DEV)  ## 1,000 stores of real traffic, each hurt in one way, and 1,000 kills; half an hour; MQPROTO_HURT_TRIALS=100, ARGS="--seed 7 --trial 3"
	@$(VENV)/bin/python -m tests.simulator.hurt $(ARGS)

strangers: $(DEMO)  ## three nodes under honest load, and attack after attack; ten minutes; MINUTES=1, ARGS="--seed 7"
	@$(VENV)/bin/mqproto fuzz strangers --minutes $(MINUTES) $(ARGS)

readers: $(DEMO)  ## the readers of bodies and pasted text, each fuzzed for ten minutes; READERS=xml, READER_SECONDS=60, ARGS="--seed 7"
	@for reader in $(READERS); do \
	  $(VENV)/bin/mqproto fuzz parser --target $$reader --seconds $(READER_SECONDS) $(ARGS) || exit; \
	done

requests: $(DEV)  ## schemathesis against three gateways, 300 requests of each kind; some minutes
	@MQPROTO_OPENAPI_EXAMPLES=300 $(VENV)/bin/python -m pytest -n 0 --timeout 3600 tests/simulator/edges/gateway/test_schemathesis.py $(ARGS)

console: $(DEV)  ## the console's numbers against queues --json in 1,000 samples under load, and 100,000 waiting messages; some minutes
	@MQPROTO_CONSOLE_SAMPLES=1000 MQPROTO_CONSOLE_WAITING=100000 $(VENV)/bin/python -m pytest -n 0 -rP --timeout 3600 tests/simulator/console/test_numbers.py $(ARGS)

letter: $(DEV)  ## our node against a second queue manager, with every other reading of the text; half an hour
	@$(VENV)/bin/python -m tests.letter.matrix $(ARGS)

mutants: $(DEV)  ## 200 random faults of one line: do worlds notice them, and tests? hours; ARGS="--faults 20", ARGS="--again FILE"
	@$(VENV)/bin/python -m tests.mutants $(ARGS)

test: $(DEV)  ## the tests; where CI is set those too that take long, which ARGS="-m long" has alone
	@$(TESTS) $(if $(CI),,-m "not long") $(ARGS)

core:  ## the core of the tests on each other Python that is here; about four minutes each, ARGS=python3.12 for one
	@.ci/pythons $(ARGS)

wheel: $(DEV)  ## the wheel in empty environments, with each extra: what it brings works, what is missing is named; a minute or two
	@$(VENV)/bin/python -m tests.wheels $(ARGS)

dist: $(DEV)  ## sdist and wheel of the last commit in dist/; unless it is a release, TAG=+g71819341 has its version name it
	@rm -rf dist build/source && mkdir -p build/source
	@git archive HEAD | tar -x -C build/source
	@cd build/source && "$(CURDIR)/$(VENV)/bin/python" -c "from setuptools.build_meta import build_sdist; \
	  build_sdist('../../dist', {'--global-option': ['egg_info', '--tag-build=$(TAG)']})" >/dev/null
	@$(VENV)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz

plants: $(DEV)  ## faults planted in core, loop and store: the first seed of simulated worlds that finds each; a minute or two
	@$(VENV)/bin/python -m tests.plants $(ARGS)

truth: $(DEV)  ## what is said of 200 worlds and of real traffic, whole and spoilt in 34 ways, against what is so; an hour; MQPROTO_TRUTH_WORLDS=20
	@MQPROTO_TRUTH_WORLDS=200 $(VENV)/bin/python -m pytest -n 0 -rP tests/captures/truth tests/captures/pipeline/test_truth.py $(ARGS)

rotation: $(DEV)  ## `mqproto analyse --watch` over an hour of captures, killed five times, and executors of its cluster; some minutes
	@MQPROTO_ROTATION_FILES=60 MQPROTO_ROTATION_KILLS=5 MQPROTO_ROTATION_EXECUTORS=1 $(VENV)/bin/python -m pytest tests/captures/pipeline/run/test_watching.py $(ARGS)

wine: $(DEV)  ## keys, bodies and signatures against Wine's CryptoAPI, 30 times as many; a minute, needs wine64 and mingw
	@MQPROTO_WINE_ROUNDS=30 $(VENV)/bin/python -m pytest -n 0 -rsP tests/security/wine $(ARGS)

bodies: $(DEV)  ## 10,000 random bodies that Mono's System.Messaging writes, and reads from us; a minute, needs mono
	@MQPROTO_BODIES=10000 $(VENV)/bin/python -m pytest -n 0 -rP tests/bodies/test_mono.py $(ARGS)

codec: $(DEV)  ## mqproto/wire/generated.py anew, after a change of the layouts
	@$(VENV)/bin/python -m tests.codec
	@$(VENV)/bin/ruff format --quiet mqproto/wire/generated.py

coverage: $(DEV)  ## all tests, and which branches of mqproto they leave out
	@$(TESTS) --cov --cov-report=term-missing:skip-covered $(ARGS)

docs: $(DEV)  ## the site in build/docs; a link that leads nowhere ends it
	@$(VENV)/bin/python -m sphinx --fresh-env --quiet --fail-on-warning --keep-going -b html -d build/doctrees docs build/docs $(ARGS)

lint: $(DEV)  ## ruff format, ruff check, mypy --strict, the schema of the workflow
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml

format: $(DEV)  ## the house style, where a program can give it
	@$(VENV)/bin/ruff format
	@$(VENV)/bin/ruff check --fix

bench: $(DEV)  ## how fast it is here, in build/bench; ten minutes, or three with ARGS=--quick
	@$(VENV)/bin/python -m tests.bench --out build/bench $(ARGS)

pictures: $(DEV)  ## the pictures of README.md anew; needs Chromium
	@$(VENV)/bin/python -m tests.pictures

samples: $(DEMO)  ## captures/samples anew, each by the command in its TOML
	@$(VENV)/bin/python -m mqproto.simulator.cli.samples captures/samples

lock: $(DEV)  ## requirements.lock anew after a change of pyproject.toml; ARGS=--upgrade takes the newest
	@$(VENV)/bin/python -m venv --clear build/lock && build/lock/bin/pip install --quiet uv
	@$(VENV)/bin/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	| build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras $(ARGS) \
	  --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml -

clean:  ## remove all that make made
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	@find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.%: pyproject.toml requirements.lock .ci/venv
	@.ci/venv $*
	@touch $@

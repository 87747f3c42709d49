# Esker: everything there is to do, one word each. 'make help' lists it. The work is done by scripts/ and tests/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# What they show is what the cache has and memory is asked for, which is otherwise there.
CACHE_TESTS = blob_kept|esker_engine_stats|esker_table_stats|esker_read_blocks

.PHONY: help setup build run test soak mutants miri bench bench-keys bench-tpch bench-inserts bench-memory bench-tpcc bench-lab stop clean distclean install uninstall fmt lint check mtr test-server-full strict-test kill-test powercut-test cargo-test replica-test scale-out bench-replica bench-commit bench-buffer bench-cost

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  Parameters: ROWS= ENGINES= ROUNDS= (run, bench)   MARIADB_SRC= MARIADB_BIN= (your own MariaDB)"
	@echo "  Start with 'make run'."

setup: ## check Rust, install Debian packages and the server's source (a moment when done already)
	@scripts/setup.sh

build: setup ## the plugin build/ha_esker.so and the command target/release/esker
	cargo build --release -p esker-mariadb -p esker-cli
	@scripts/build-plugin.sh

run: build ## the demonstration: load, scan, kill -9, all rows there (ROWS=2000000)
	@scripts/demo.py

test: ## everything that must hold: unit, property, simulation, server, kill -9, power cut
	@scripts/test.py

soak: ## the long version: 10,000 seeds, 100 kills, 50 power cuts; writes build/soak.md
	@scripts/test.py --soak

mutants: ## the test of the tests: planted faults, one at a time, that the suites must notice (ONLY=wal,flush-boundary)
	@scripts/mutants.py

miri: ## arena, memtable and shares of regions under Miri, which sees undefined behaviour (needs: rustup +nightly component add miri)
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p esker --lib -- arena:: memtable::
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p esker-memory --lib -- shares::

bench: build ## side by side with MyISAM, Aria, InnoDB, MyRocks (ROWS=10000000 ROUNDS=5); writes bench/results/
	@bench/run.py

bench-keys: build ## tables with keys: loads, changes and sysbench (ROWS=10000000 ROUNDS=3 ONLY=load); writes bench/results/
	@bench/keys.py

bench-tpch: build ## TPC-H's 22 queries beside InnoDB and MyISAM (SCALE=1 ROUNDS=3 QUERIES=q1,q6); writes bench/results/
	@bench/tpch.py

bench-inserts: build ## durable inserts of 1,000 rows by 8 writers beside InnoDB and MyRocks (ROWS=3000000 SECONDS=3600); writes bench/results/
	@bench/inserts.py

bench-commit: export FOR_BENCH = 1
bench-commit: build ## durable commits of one row by 1 to 512 clients, on disks with slow flushes too (DISKS=2ms-ext4,disk CLIENTS=1,8 ONLY=rates); writes bench/results/
	@bench/commit.py

bench-memory: build ## sysbench with data four times the memory, bytes written by updates (MEMORY=512 MINUTES=30); writes bench/results/
	@bench/memory.py

bench-tpcc: build ## TPC-C beside InnoDB and MyRocks, durable with binlog, in memory and with data four times the memory (WAREHOUSES=22 SECONDS=60); writes bench/results/
	@bench/tpcc.py

bench-lab: ## esker lab beside fio, pg_test_fsync, hyperfine and perf trace (ROUNDS=6 MIB=512); writes bench/results/
	cargo build --release -p esker-cli
	@bench/lab.py

bench-buffer: build ## buffer sizes through the server: INSERT ... SELECT with Esker's, MyISAM's and Aria's own (ROWS=2000000 ROUNDS=5 SIZES=128K,1M); writes bench/results/
	@bench/buffer.py

bench-cost: build ## what the figures that are always on cost a statement, reckoned and measured (TESTS=oltp_point_select,load SIZE=100000 SECONDS=10 PAIRS=8)
	@bench/cost.py

bench-replica: build ## what a replica does with tables that have no key, beside InnoDB (ROWS=100000 CHANGES=10000); writes bench/results/
	@bench/replica.py

check: ## rules only: who may use whom, formatting, clippy
	@scripts/check_deps.py
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

cargo-test: ## Rust tests only; needs neither MariaDB nor root
	cargo test --release --workspace

mtr: build ## server tests: ours, and MariaDB's storage_engine suite against the InnoDB baseline
	@scripts/mtr.sh all

test-server-full: build ## MariaDB's general suites with Esker as the default engine, against InnoDB (SUITES="vcol gcol.gcol_keys_innodb main:1/6")
	@scripts/mtr_suites.py $(SUITES)

strict-test: build ## our suite, storage_engine and random SQL over long values with a plugin in which memory is out of reach once it is given back
	cargo build --release -p esker-mariadb --features strict-memory --target-dir target/strict
	@mkdir -p build/strict
	@CORE_LIB=target/strict/release/libesker_mariadb.a OUT=build/strict/ha_esker.so scripts/build-plugin.sh
	@ESKER_PLUGIN=$(CURDIR)/build/strict/ha_esker.so scripts/mtr.sh esker --skip-test='$(CACHE_TESTS)'
	@ESKER_PLUGIN=$(CURDIR)/build/strict/ha_esker.so scripts/mtr.sh storage_engine
	@ESKER_PLUGIN=$(CURDIR)/build/strict/ha_esker.so /usr/bin/pytest-3 tests/server/long_values_test.py

kill-test: build ## kill -9 under load, checked row by row (KILLS=3)
	@/usr/bin/pytest-3 tests/server/kill_test.py

powercut-test: build ## power cuts on a disk of our own (CUTS=1; needs root, loop devices and FUSE)
	@/usr/bin/pytest-3 tests/server/powercut_test.py

replica-test: build ## kill -9 of a primary, its replica, both; a power cut of the primary; both have the same rows (KILLS=3 CUTS=1)
	@/usr/bin/pytest-3 tests/server/replica_test.py

scale-out: build ## several servers: replicas, switchover, failover, Spider over shards, killed meanwhile (PARTS=replicas,spider)
	@scripts/scale_out.py

fmt: ## format the Rust code
	cargo fmt --all

lint: ## clippy, warnings are errors
	cargo clippy --workspace --all-targets -- -D warnings

stop: ## stop every private server under var/
	@if [ -r build/env.sh ]; then scripts/server.py stop all; else echo "no private server is running"; fi

install: ## what 'make build' left, into the system's MariaDB: plugin and a cnf file
	@scripts/install.sh install

uninstall: ## take it out again (the data stays)
	@scripts/install.sh uninstall

clean: stop ## stop servers, remove build/, var/ and target/ (the source stays in the cache folder)
	rm -rf build var target

distclean: clean ## clean, and the server's source in the cache folder
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/esker"

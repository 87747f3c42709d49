#!/usr/bin/env bash
# fuzz.sh: a short run of every fuzz target in fuzz/ (FUZZ_SECONDS each, default 10). Needs cargo-fuzz and a nightly
# toolchain; without them the targets are still compiled and run over their seeds by 'cargo test', and this is SKIPPED.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -r fuzz/Cargo.toml ] || { echo "fuzz: SKIPPED: there is no fuzz/ workspace"; exit 77; }
if [ -x fuzz/run.sh ]; then exec fuzz/run.sh; fi # a runner of its own
command -v cargo-fuzz >/dev/null || { echo "fuzz: SKIPPED: cargo-fuzz is not installed (cargo install cargo-fuzz)"; exit 77; }
cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: SKIPPED: there is no nightly toolchain (rustup toolchain install nightly)"; exit 77; }
for target in $(cargo +nightly fuzz list); do
    echo "fuzz: $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="${FUZZ_SECONDS:-10}" -print_final_stats=1
done

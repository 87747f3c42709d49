#!/usr/bin/env bash
# fuzz.sh: a short run of every fuzz target in fuzz/ under libFuzzer, with the stable compiler (no sanitizer: the decoders'
# own checks and Rust's are what finds a fault). A longer one: see fuzz/README.md.
#
#   FUZZ_SECONDS=8   each
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/esker/tools/bin:$PATH
command -v cargo-fuzz >/dev/null || { echo "fuzz: cargo-fuzz is missing; run 'FOR_TESTS=1 scripts/setup.sh'" >&2; exit 1; }
unset CARGO_TARGET_DIR # two workspaces in one folder would build everything twice
cargo run --quiet --release --bin seeds
rc=0
for file in fuzz_targets/*.rs; do
    target=$(basename "$file" .rs)
    echo "fuzz: $target"
    # The corpus that it gathers stays on this machine and makes the next run better.
    if cargo fuzz run --sanitizer none "$target" -- -max_total_time="${FUZZ_SECONDS:-8}" -print_final_stats=1 -verbosity=0; then
        echo "fuzz: $target: ok"
    else
        echo "fuzz: $target: FAILED"; rc=1
    fi
done
exit $rc

#!/usr/bin/env bash
# fuzz.sh: a short run of every fuzz target in fuzz/ under libFuzzer, with the stable compiler (no sanitizer: the decoders'
# own checks and Rust's are what finds a fault), as many at a time as there are processors. A longer one: see fuzz/README.md.
#
#   FUZZ_SECONDS=8   each
#   fuzz.sh build    only compiles
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/esker/tools/bin:$PATH
command -v cargo-fuzz >/dev/null || { echo "fuzz: cargo-fuzz is missing; run 'FOR_TESTS=1 scripts/setup.sh'" >&2; exit 1; }
unset CARGO_TARGET_DIR # two workspaces in one folder would build everything twice
cargo build --quiet --release --example seeds
cargo fuzz build --sanitizer none
[ "${1:-}" != build ] || exit 0
cargo run --quiet --release --example seeds

# A target's output comes whole. The corpus that it gathers stays on this machine and makes the next run better.
one() {
    if said=$(cargo fuzz run --sanitizer none "$1" -- -max_total_time="${FUZZ_SECONDS:-8}" -print_final_stats=1 -verbosity=0 2>&1); then
        printf '%s\nfuzz: %s: ok\n' "$said" "$1"
    else
        printf '%s\nfuzz: %s: FAILED\n' "$said" "$1"
        return 1
    fi
}
export -f one
basename -a -s .rs fuzz_targets/*.rs | xargs -P "$(nproc)" -I{} bash -c 'one {}'

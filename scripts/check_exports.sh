#!/usr/bin/env bash
# check_exports.sh: the plugin exports what MariaDB looks up by name (declarations, service pointers) and nothing else,
# stays loaded once loaded (NODELETE), and no library is linked to it beyond the C and C++ runtime.
set -euo pipefail
cd "$(dirname "$0")/.."
so=${1:-build/ha_esker.so}
[ -r "$so" ] || { echo "check_exports: $so is missing; run 'make build' first" >&2; exit 1; }
rc=0
extra=$(nm -D --defined-only "$so" | awk '{print $NF}' | grep -v -E '^(_maria_(plugin_declarations_|plugin_interface_version_|sizeof_struct_st_plugin_)|[a-z0-9_]+_service|provider_service_[a-z0-9]+|print_check_msg_context)$' || true)
[ -z "$extra" ] || { echo "exported, but nobody asks for it: $extra"; rc=1; }
nm -D --defined-only "$so" | grep -q _maria_plugin_declarations_ || { echo "no plugin declarations are exported"; rc=1; }
readelf -d "$so" | grep -q NODELETE || { echo "not linked with -z nodelete"; rc=1; }
other=$(readelf -d "$so" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | grep -v -E '^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux.*)\.so' || true)
[ -z "$other" ] || { echo "needs other libraries: $other"; rc=1; }
if [ -r build/env.sh ]; then # what it takes must come from the server or the runtime: anything else would fail when it is loaded
    . build/env.sh
    open=$(comm -23 <(nm -D --undefined-only "$so" | awk '$1 == "U" {print $2}' | grep -v @ | sort -u) <(nm -D --defined-only "$ESKER_MARIADBD" | awk '{print $NF}' | sort -u))
    [ -z "$open" ] || { echo "the server does not have: $open"; rc=1; }
fi
[ $rc != 0 ] || echo "check_exports: $(nm -D --defined-only "$so" | wc -l) symbols, all asked for"
exit $rc

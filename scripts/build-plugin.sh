#!/usr/bin/env bash
# build-plugin.sh: makes build/ha_esker.so from the shim (mariadb/*.cc) and the Rust core (libesker_mariadb.a).
#
# Owns: the compiler and linker flags of the shim. Only what changed is compiled again; any changed header compiles all.
# The plugin exports what MariaDB looks up in it by name and nothing else: its declarations (_maria_*) and the pointers
# to server services (*_service), which the server fills in when it loads the plugin.
#
# For experiments: SHIM_DIR= other folder of .cc files, CORE_LIB= other static library ("none" for no core), OUT= other .so
set -euo pipefail
cd "$(dirname "$0")/.."
[ -r build/env.sh ] || { echo "build-plugin: build/env.sh is missing; run 'make setup' first" >&2; exit 1; }
. build/env.sh
SHIM_DIR=${SHIM_DIR:-mariadb}
OUT=${OUT:-build/ha_esker.so}
TARGET=${CARGO_TARGET_DIR:-target}
CORE_LIB=${CORE_LIB:-$TARGET/release/libesker_mariadb.a}
CXX=${CXX:-g++}
OBJ=build/obj/$(basename "$OUT" .so)

compgen -G "$SHIM_DIR/*.cc" >/dev/null || { echo "build-plugin: no .cc files in $SHIM_DIR/" >&2; exit 1; }
if [ "$CORE_LIB" = none ]; then CORE_LIB=
elif [ ! -r "$CORE_LIB" ]; then echo "build-plugin: $CORE_LIB is missing; run 'cargo build --release -p esker-mariadb'" >&2; exit 1; fi

# MariaDB's headers come by -isystem, so that every warning is about our own code.
# What is called for every row begins a cache line: a third of a scan depended on where a build happened to put it.
FLAGS="-std=gnu++17 -O2 -falign-functions=64 -g1 -fPIC -ffunction-sections -fdata-sections -Wall -Wextra -Wshadow ${CXXFLAGS:-}
    -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -DDBUG_OFF -DNDEBUG -I $SHIM_DIR -I crates/esker-mariadb/include $ESKER_INCLUDES"

mkdir -p "$OBJ"
echo "$CXX $FLAGS" >"$OBJ/flags.new"
cmp -s "$OBJ/flags.new" "$OBJ/flags" || { rm -f "$OBJ"/*.o; mv "$OBJ/flags.new" "$OBJ/flags"; }
newest_header=$(find "$SHIM_DIR" crates/esker-mariadb/include build/env.sh -maxdepth 1 \( -name '*.h' -o -name env.sh \) -printf '%T@ %p\n' 2>/dev/null |
    sort -n | tail -1 | cut -d" " -f2- || true)
objects=() todo=()
for cc in "$SHIM_DIR"/*.cc; do
    o=$OBJ/$(basename "$cc" .cc).o
    objects+=("$o")
    if [ ! -e "$o" ] || [ "$cc" -nt "$o" ] || [ "$newest_header" -nt "$o" ]; then todo+=("$cc"); fi
done
for o in "$OBJ"/*.o; do # of a source file that is gone
    [ -e "$SHIM_DIR/$(basename "$o" .o).cc" ] || rm -f "$o"
done
if [ ${#todo[@]} -gt 0 ]; then
    printf '  CXX  %s\n' "${todo[@]}"
    printf '%s\0' "${todo[@]}" | FLAGS=$FLAGS CXX=$CXX OBJ=$OBJ xargs -0 -P "$(nproc)" -n 1 sh -c \
        '$CXX $FLAGS -c -o "$OBJ/$(basename "$1" .cc).o" "$1"' sh
fi

if [ ${#todo[@]} -gt 0 ] || [ ! -e "$OUT" ] || [ "$CORE_LIB" -nt "$OUT" ]; then
    echo "  LINK $OUT"
    printf '{ global: _maria_*; *_service; provider_service_*; print_check_msg_context; local: *; };\n' >"$OBJ/exports.map"
    # A new file, moved into place: a server that runs with the old one keeps it.
    $CXX -shared -o "$OUT.new" "${objects[@]}" -Wl,--whole-archive "$ESKER_SERVICES_LIB" -Wl,--no-whole-archive $CORE_LIB \
        -Wl,--version-script="$OBJ/exports.map" -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now \
        ${LDFLAGS:-} -lpthread -ldl -lm
    mv "$OUT.new" "$OUT"
    echo "$ESKER_MARIADB_VERSION" >"${OUT%.so}.version"
fi

#!/usr/bin/env bash
# mtr.sh: runs MariaDB's test driver on a private copy of its tests, with our suite and our overlays in it.
#
# Owns: the copy under var/mtr/, laid out as an install tree (mtr writes beside its sources, and finds plugins there).
#
#   scripts/mtr.sh all               our suite, then MariaDB's storage_engine suite against the baseline
#   scripts/mtr.sh esker [test...]   our suite (mariadb/mysql-test/esker); RECORD=1 records results,
#                                    STAND_IN=InnoDB puts another engine in Esker's place
#   scripts/mtr.sh storage_engine    MariaDB's storage_engine suite (with trx and parts) for Esker, then the comparison
#   scripts/mtr.sh baseline          the same with InnoDB, and write mariadb/mysql-test/baseline/ (once per server version)
#   scripts/mtr.sh lay-out           only the copy; SUITES= names further suites for it, MTR_TREE= another place
#   scripts/mtr.sh run <mtr arguments>   anything else, e.g.: run --suite=main --mysqld=--plugin-load-add=$HA_ESKER_SO
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
[ -r build/env.sh ] || { echo "mtr: build/env.sh is missing; run 'make setup' first" >&2; exit 1; }
. build/env.sh
PLUGIN=${ESKER_PLUGIN:-$ROOT/build/ha_esker.so}
HERE=$ROOT/mariadb/mysql-test
TREE=${MTR_TREE:-$ROOT/var/mtr}
SOURCE=$ESKER_SHARE_DIR/mysql-test
[ -d "$SOURCE" ] || SOURCE=$ESKER_MARIADB_PREFIX/mysql-test
[ -r "$SOURCE/mariadb-test-run.pl" ] || { echo "mtr: no mariadb-test-run.pl in $SOURCE (packages mariadb-test, mariadb-test-data)" >&2; exit 1; }

lay_out() { # the install tree: everything linked but mysql-test and the plugin folder
    local f d
    mkdir -p "$TREE"/{bin,sbin,lib/mysql/plugin,share/mysql/mysql-test/plugin}
    for f in "$ESKER_MARIADB_PREFIX"/bin/m{ariadb,y,ysql}* "$ESKER_MARIADB_PREFIX"/bin/{aria_,innochecksum,perror,replace,resolve,mbstream}*; do
        if [ -e "$f" ]; then ln -sf "$f" "$TREE/bin/"; fi
    done
    ln -sf "$ESKER_MARIADBD" "$TREE/sbin/mariadbd"; ln -sf "$ESKER_MARIADBD" "$TREE/sbin/mysqld"
    for f in "$ESKER_SHARE_DIR"/*; do [ "$(basename "$f")" = mysql-test ] || ln -sfn "$f" "$TREE/share/mysql/"; done
    for f in "$ESKER_PLUGIN_DIR"/*; do ln -sfn "$f" "$TREE/lib/mysql/plugin/"; done
    rm -f "$TREE/lib/mysql/plugin/ha_esker.so"
    if [ -e "$PLUGIN" ]; then ln -s "$PLUGIN" "$TREE/lib/mysql/plugin/ha_esker.so"; fi
    if [ "$(cat "$TREE/version" 2>/dev/null)" != "$ESKER_MARIADB_VERSION $SOURCE" ]; then
        for f in include lib std_data collections main; do rm -rf "$TREE/share/mysql/mysql-test/$f"; cp -r "$SOURCE/$f" "$TREE/share/mysql/mysql-test/"; done
        find "$SOURCE" -maxdepth 1 -type f -exec cp {} "$TREE/share/mysql/mysql-test/" \;
        mkdir -p "$TREE/share/mysql/mysql-test/suite"
        # other suites are copied when they are first asked for (see 'run'), these two are always wanted
        rm -rf "$TREE/share/mysql/mysql-test/suite/"*; echo "$ESKER_MARIADB_VERSION $SOURCE" >"$TREE/version"
    fi
    for f in storage_engine ${SUITES:-}; do
        [ -d "$TREE/share/mysql/mysql-test/suite/${f%%/*}" ] || cp -r "$SOURCE/suite/${f%%/*}" "$TREE/share/mysql/mysql-test/suite/"
    done
    find "$TREE/share/mysql/mysql-test/suite" -name '*.reject' -delete
    d=$TREE/share/mysql/mysql-test/suite/storage_engine # results: the shipped ones, or InnoDB's on this version where they are stale
    for f in . trx parts; do cp "$SOURCE"/suite/storage_engine/$f/*.result "$d/$f/"; done
    [ -n "${SHIPPED_RESULTS:-}" ] || [ ! -d "$HERE/baseline/results" ] || cp -r "$HERE/baseline/results/." "$d/"
    d=$TREE/share/mysql/mysql-test/plugin
    rm -rf "$d/esker"; mkdir -p "$d/esker"
    cp -r "$HERE/storage_engine" "$d/esker/"
    rm -rf "$TREE/share/mysql/mysql-test/suite/esker"; cp -r "$HERE/esker" "$TREE/share/mysql/mysql-test/suite/esker"
}

mtr() {
    export MTR_BUILD_THREAD=${MTR_BUILD_THREAD:-350}
    (cd "$TREE/share/mysql/mysql-test" && perl mariadb-test-run.pl --force --enable-disabled --max-test-fail=0 --retry=0 --testcase-timeout=5 \
        --suite-timeout=60 --vardir="$VARDIR" --parallel="${MTR_PARALLEL:-3}" "$@")
}
need_plugin() { [ -e "$PLUGIN" ] || { echo "mtr: $PLUGIN is missing; run 'make build' first" >&2; exit 1; }; }
VARDIR=$TREE/v
[ ${#VARDIR} -le 60 ] || { VARDIR=/tmp/esker-$(id -u)-mtr; mkdir -p "$VARDIR"; } # unix sockets live below it: short paths only

run_esker() {
    [ -n "${STAND_IN:-}" ] || need_plugin
    lay_out
    local d=$TREE/share/mysql/mysql-test/suite/esker rc=0 record=()
    if [ -n "${STAND_IN:-}" ]; then # another engine in Esker's place: what both must answer alike
        rm -f "$d"/t/esker_* "$d/suite.pm"
        sed -i "s/Esker/$STAND_IN/g" "$d"/t/*.test
        find "$d/r" -name '*.result' -exec sed -i "s/Esker/$STAND_IN/g" {} +
        echo "--innodb --loose-sequence" >"$d/suite.opt"
    fi
    if [ -n "${RECORD:-}" ]; then
        record=(--record)
        [ $# -gt 0 ] || set -- $(cd "$d/t" && ls *.test | sed 's/\.test$//')
        mkdir -p "$d/r"
    fi
    mtr --suite=esker "${record[@]}" "$@" || rc=$?
    if [ -n "${RECORD:-}" ]; then
        [ -z "${STAND_IN:-}" ] || sed -i "s/$STAND_IN/Esker/g" "$d"/r/*.result
        cp "$d"/r/*.result "$HERE/esker/r/"
    fi
    return $rc
}
run_storage_engine() {
    need_plugin; lay_out
    mtr --suite=storage_engine-esker,storage_engine/trx-esker,storage_engine/parts-esker "$@" >"$TREE/storage_engine.log" 2>&1 || true
    scripts/mtr_compare.py "$TREE/storage_engine.log" "$VARDIR"
}
run_baseline() { # our overlay, with InnoDB put in Esker's place
    SHIPPED_RESULTS=1 lay_out
    local d=$TREE/share/mysql/mysql-test/plugin/esker/storage_engine
    find "$d" \( -name '*.result' -o -name '*.rdiff' \) -delete
    sed -i 's/^let \$ENGINE *=.*/let $ENGINE = InnoDB;/' "$d/define_engine.inc"
    find "$d" -name suite.opt -exec sh -c 'echo "--innodb --innodb-lock-wait-timeout=1 --innodb-log-file-size=200M" >"$1"' sh {} \;
    mtr --suite=storage_engine-esker,storage_engine/trx-esker,storage_engine/parts-esker "$@" >"$TREE/baseline.log" 2>&1 || true
    scripts/mtr_compare.py --write-baseline "$TREE/baseline.log" "$VARDIR" "$ESKER_MARIADB_VERSION"
}

verb=${1:-all}; [ $# = 0 ] || shift
case $verb in
    esker) run_esker "$@" ;;
    storage_engine) run_storage_engine "$@" ;;
    baseline) run_baseline "$@" ;;
    lay-out) lay_out ;;
    run) SUITES=$(printf '%s\n' "$@" | sed -n 's/^--suite=//p' | tr ',' '\n' | sed 's/-esker$//' | grep -v -x -e main -e esker || true); lay_out; mtr "$@" ;;
    all) rc=0; run_esker || rc=1; run_storage_engine || rc=1; exit $rc ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

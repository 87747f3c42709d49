#!/usr/bin/env bash
# setup.sh: makes a Debian 12 machine ready to build, run and test Esker.
#
# Owns: the check for Rust, the Debian packages, the MariaDB server's source (its private headers are in no package),
# and build/env.mk + build/env.sh, which tell every other script where server, headers and source are.
# Safe to run again: when all is in place it takes well under a second.
#
#   MARIADB_SRC=dir   an unpacked MariaDB source tree of the server's version (nothing is downloaded then)
#   MARIADB_BIN=dir   prefix or bin directory of a MariaDB of your own (no server package is installed then)
#   ESKER_MIRROR=url  Debian mirror for the source package (default http://deb.debian.org)
#   FOR_TESTS=1       with what only tests need (a browser, tools of file systems, sysbench, cargo-fuzz, Spider)
#   FOR_BENCH=1       with what only bench-commit needs (strace, XFS's tools, sysbench)
#   FORCE=1           look at everything again
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/esker
RUST_WANTED=1.85
TOOLS_DIR=$CACHE/tools # programs that only tests need, built by cargo
CARGO_FUZZ=0.13.2
MIRROR=${ESKER_MIRROR:-http://deb.debian.org}
TEST_PACKAGES='chromium btrfs-progs xfsprogs sysbench'
BENCH_PACKAGES='strace xfsprogs sysbench'

say() { printf 'setup: %s\n' "$*"; }
die() { printf '\nsetup: %s\n' "$1" >&2; shift; for line in "$@"; do printf '       %s\n' "$line" >&2; done; exit 1; }
version_of() { "$1" --no-defaults --version 2>/dev/null | sed -nE 's/.*Ver ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p'; }

# ---- Rust ----------------------------------------------------------------------------------------------------------
check_rust() {
    local how='get it with:  curl --proto "=https" --tlsv1.2 -sSf https://sh.rustup.rs | sh   (then open a new shell)'
    command -v cargo >/dev/null && command -v rustc >/dev/null ||
        die "no Rust toolchain found; Esker needs Rust $RUST_WANTED or later (Debian 12's own is older)." "$how"
    local have
    have=$(rustc --version | sed -nE 's/^rustc ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p')
    [ -n "$have" ] || die "cannot read the version that 'rustc --version' prints." "$how"
    [ "$(printf '%s\n%s\n' "$RUST_WANTED" "$have" | sort -V | head -1)" = "$RUST_WANTED" ] ||
        die "rustc is $have, Esker needs $RUST_WANTED or later." "$how" "or, with rustup there already:  rustup update stable"
}

have_spider() { [ -n "${MARIADB_BIN:-}" ] || installed mariadb-plugin-spider; }
have_cargo_fuzz() { [ -x "$TOOLS_DIR/bin/cargo-fuzz" ] && [ "$("$TOOLS_DIR/bin/cargo-fuzz" --version)" = "cargo-fuzz $CARGO_FUZZ" ]; }

# ---- is everything here already? -----------------------------------------------------------------------------------
up_to_date() {
    [ -z "${FORCE:-}" ] && [ -r build/env.sh ] || return 1
    [ -z "${FOR_TESTS:-}" ] || { [ -z "$(missing $TEST_PACKAGES)" ] && have_cargo_fuzz && have_spider; } || return 1
    [ -z "${FOR_BENCH:-}" ] || [ -z "$(missing $BENCH_PACKAGES)" ] || return 1
    (
        want_src=${MARIADB_SRC:-} want_bin=${MARIADB_BIN:-}
        . build/env.sh
        [ "$ESKER_ASKED" = "$want_src|$want_bin" ] && [ -x "$ESKER_MARIADBD" ] && [ -r "$MARIADB_SRC/sql/handler.h" ] &&
            [ -r "$ESKER_SERVICES_LIB" ] && [ "$(version_of "$ESKER_MARIADBD")" = "$ESKER_MARIADB_VERSION" ] &&
            [ "$(stat -c %Y scripts/setup.sh)" -le "$(stat -c %Y build/env.sh)" ]
    )
}

# ---- Debian packages -----------------------------------------------------------------------------------------------
SUDO=
need_root() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null && { SUDO=sudo; return; }
    die "packages are missing and neither root nor sudo is at hand. As root, run:" "apt-get install $*"
}
installed() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }
missing() { local p; for p in "$@"; do installed "$p" || printf '%s ' "$p"; done; }
of_other_version() { # of_other_version version package...: those that are installed, but not of it, as a client library that sysbench brought
    local v=$1 p; shift
    for p in "$@"; do ! installed "$p" || [ "$(dpkg-query -W -f '${Version}' "$p")" = "$v" ] || printf '%s ' "$p"; done
}

apt_updated=
apt_update() {
    [ -n "$apt_updated" ] && return
    say "reading the package lists"
    $SUDO apt-get -o DPkg::Lock::Timeout=600 -qq update || say "warning: 'apt-get update' failed, going on with the lists there are"
    apt_updated=1
}

apt_install() { # apt_install package[=version]...
    need_root "$@"
    apt_update
    say "installing: $*"
    # The packaged server must not start by itself: Esker runs servers of its own under var/.
    local policy=/usr/sbin/policy-rc.d mine= rc=0
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | $SUDO tee $policy >/dev/null && $SUDO chmod 755 $policy && mine=1
    fi
    $SUDO env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -y -qq --no-install-recommends \
        --allow-downgrades install "$@" >"$ROOT/build/apt.log" 2>&1 || rc=$?
    [ -z "$mine" ] || $SUDO rm -f $policy
    [ $rc = 0 ] || { tail -20 "$ROOT/build/apt.log" >&2; die "apt-get could not install: $*" "the whole output is in build/apt.log"; }
}

# ---- the source package: an apt world of its own, so the machine's lists stay as they are ------------------------------
src_apt() { # src_apt program args...: with deb-src entries and state under the cache folder
    local prog=$1; shift
    local o=(-o Dir::Etc::sourcelist="$CACHE/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$CACHE/apt/lists"
        -o Dir::Cache="$CACHE/apt/cache" -o APT::Sandbox::User="$(id -un)" -o APT::Get::List-Cleanup=0)
    "$prog" "${o[@]}" "$@"
}
source_lists() {
    local suite
    suite=$(. /etc/os-release; echo "${VERSION_CODENAME:-bookworm}")
    mkdir -p "$CACHE/apt/lists/partial" "$CACHE/apt/cache/archives/partial"
    printf 'deb-src %s/debian %s main\n' "$MIRROR" "$suite" "$MIRROR" "$suite-updates" >"$CACHE/apt/sources.list"
    printf 'deb-src %s/debian-security %s-security main\n' "$MIRROR" "$suite" >>"$CACHE/apt/sources.list"
    src_apt apt-get -qq update || say "warning: could not read every list of Debian sources"
}
upstream() { sed -E 's/^[0-9]+://; s/[-+].*//' <<<"$1"; } # 1:10.11.18-0+deb12u1 -> 10.11.18

fetch_source() { # fetch_source deb-version: true when $CACHE/mariadb-<upstream> holds that source afterwards
    local v dir tmp; v=$(upstream "$1"); dir=$CACHE/mariadb-$v
    [ -r "$dir/sql/handler.h" ] && return 0
    tmp=$CACHE/download-$v.$$; mkdir -p "$tmp"
    say "fetching the source of MariaDB $1 (about 115 MB)"
    if ! (cd "$tmp" && src_apt apt-get -qq source --download-only "mariadb=$1") >"$CACHE/fetch.log" 2>&1; then
        rm -rf "$tmp"; say "its source cannot be had: $(grep -m1 '^E:' "$CACHE/fetch.log" || echo 'see fetch.log in the cache folder')"
        return 1
    fi
    say "unpacking it to $dir"
    (cd "$tmp" && dpkg-source --no-check -x ./*.dsc tree) >"$CACHE/unpack.log" 2>&1 || { rm -rf "$tmp"; die "cannot unpack the source, see $CACHE/unpack.log"; }
    rm -rf "$dir"; mv "$tmp/tree" "$dir"; rm -rf "$tmp"
}

MARIADB_PACKAGES='mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common libmariadb3 libmariadb-dev libmariadbd-dev libmariadbd19
    mariadb-test mariadb-test-data mariadb-plugin-rocksdb'

install_mariadb() { # the packages, all of one version whose source can be had; sets VERSION and MARIADB_SRC
    local have=none v chosen= p list=
    installed mariadb-server-core && have=$(dpkg-query -W -f '${Version}' mariadb-server-core)
    if [ "$have" != none ]; then
        if [ -n "${MARIADB_SRC:-}" ] || [ -r "$CACHE/mariadb-$(upstream "$have")/sql/handler.h" ]; then chosen=$have
        else source_lists; fetch_source "$have" && chosen=$have; fi
        [ -n "$chosen" ] || die "MariaDB $have is installed, but its source package cannot be had, and a plugin must be built from exactly that version." \
            "Either name an unpacked source tree of $(upstream "$have"):  MARIADB_SRC=/path make setup" \
            "or remove the mariadb packages; setup then installs the newest version for which both can be had."
    else
        need_root mariadb-server; apt_update
        [ -n "${MARIADB_SRC:-}" ] || source_lists
        while read -r v; do
            if [ -n "${MARIADB_SRC:-}" ]; then [ "$(upstream "$v")" = "$(source_version "$MARIADB_SRC")" ] || continue
            else fetch_source "$v" || continue; fi
            chosen=$v; break
        done < <(apt-cache madison mariadb-server | awk '{print $3}' | sort -ruV)
        [ -n "$chosen" ] || die "no version of mariadb-server was found for which both the binary and the source package can be had." \
            "Seen: $(apt-cache madison mariadb-server | awk '{print $3}' | sort -uV | tr '\n' ' ')" \
            "Name an unpacked source tree with MARIADB_SRC=, a server of your own with MARIADB_BIN=."
    fi
    p=$(missing $MARIADB_PACKAGES ${FOR_TESTS:+mariadb-plugin-spider})
    [ -z "$p" ] || p="$p $(of_other_version "$chosen" $MARIADB_PACKAGES)"
    for p in $p; do list="$list $p=$chosen"; done
    [ "$(dpkg --print-architecture)" = amd64 ] || list=${list/mariadb-plugin-rocksdb=$chosen/}
    [ -z "${list// /}" ] || apt_install $list
    VERSION=$(upstream "$chosen")
    MARIADB_SRC=${MARIADB_SRC:-$CACHE/mariadb-$VERSION}
}
source_version() { # of an unpacked tree: its VERSION file
    [ -r "$1/VERSION" ] && [ -r "$1/sql/handler.h" ] || die "MARIADB_SRC=$1 is not an unpacked MariaDB source tree (no VERSION or sql/handler.h there)."
    sed -nE 's/^MYSQL_VERSION_(MAJOR|MINOR|PATCH)=([0-9]+).*/\2/p' "$1/VERSION" | paste -sd.
}
first() { local f; for f in "$@"; do if [ -e "$f" ]; then echo "$f"; return; fi; done; }

# ---- main ----------------------------------------------------------------------------------------------------------
check_rust
if up_to_date; then exit 0; fi
mkdir -p build "$CACHE"
ASKED="${MARIADB_SRC:-}|${MARIADB_BIN:-}"
[ -z "${MARIADB_SRC:-}" ] || source_version "$MARIADB_SRC" >/dev/null

TOOLS=$(missing build-essential pkg-config python3 python3-pymysql python3-pytest dpkg-dev e2fsprogs libfuse3-dev fuse3 ${FOR_TESTS:+$TEST_PACKAGES} ${FOR_BENCH:+$BENCH_PACKAGES})
[ -z "$TOOLS" ] || apt_install $TOOLS
if [ -n "${FOR_TESTS:-}" ] && ! have_cargo_fuzz; then
    say "building cargo-fuzz $CARGO_FUZZ"
    cargo install --quiet cargo-fuzz --version "$CARGO_FUZZ" --locked --root "$TOOLS_DIR" >build/cargo-fuzz.log 2>&1 ||
        { tail -5 build/cargo-fuzz.log >&2; die "cargo-fuzz could not be built" "the whole output is in build/cargo-fuzz.log"; }
fi

if [ -n "${MARIADB_BIN:-}" ]; then
    SERVER=$(first "$MARIADB_BIN/mariadbd" "$MARIADB_BIN/sbin/mariadbd" "$MARIADB_BIN/bin/mariadbd" "$MARIADB_BIN/libexec/mariadbd" "$MARIADB_BIN/sql/mariadbd")
    [ -n "$SERVER" ] || die "MARIADB_BIN=$MARIADB_BIN holds no mariadbd (looked in it and its sbin, bin, libexec, sql)."
    PREFIX=$(cd "$(dirname "$SERVER")/.." && pwd)
    VERSION=$(version_of "$SERVER")
    [ -n "$VERSION" ] || die "$SERVER does not tell its version (tried '$SERVER --version')."
    if [ -z "${MARIADB_SRC:-}" ]; then
        source_lists
        v=$(src_apt apt-cache madison mariadb | awk '{print $3}' | grep -E "^([0-9]+:)?$VERSION[-+]" | sort -V | tail -1) || true
        [ -n "$v" ] && fetch_source "$v" || die "the source of MariaDB $VERSION cannot be had from Debian; name it with MARIADB_SRC=."
        MARIADB_SRC=$CACHE/mariadb-$VERSION
    fi
else
    install_mariadb
    PREFIX=/usr
    SERVER=$(first /usr/sbin/mariadbd /usr/sbin/mysqld)
    [ -n "$SERVER" ] || die "package mariadb-server is installed, but there is no /usr/sbin/mariadbd."
fi
have=$(version_of "$SERVER"); source=$(source_version "$MARIADB_SRC")
[ "$have" = "$source" ] || die "the server $SERVER is MariaDB $have, the source in $MARIADB_SRC is $source." \
    "A plugin runs only in exactly the version it was built for: make both the same."

LIBDIR=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
INC=$(dirname "$(first "$PREFIX"/include/{mysql/server,mysql,mariadb/server,mariadb}/my_config.h "$PREFIX/include/my_config.h" "$PREFIX/include")")
SERVICES=$(first "$LIBDIR/libmysqlservices.a" "$PREFIX/lib/libmysqlservices.a" "$PREFIX/lib64/libmysqlservices.a" "$PREFIX/libservices/libmysqlservices.a")
if [ -n "${MARIADB_BIN:-}" ]; then
    SERVICES=$(first "$PREFIX/lib/libmysqlservices.a" "$PREFIX/lib64/libmysqlservices.a" "$PREFIX/libservices/libmysqlservices.a" "$SERVICES")
fi
[ -r "$INC/my_config.h" ] || die "no my_config.h under $PREFIX/include (package libmariadbd-dev, or the build folder of your own server)."
[ -n "$SERVICES" ] || die "no libmysqlservices.a found (package libmariadb-dev, or 'make mysqlservices' in your own build)."
CLIENTDIR=$PREFIX/bin
[ -x "$CLIENTDIR/mariadb" ] || CLIENTDIR=$(dirname "$(command -v mariadb || die "no mariadb client found in $PREFIX/bin or the PATH.")")
SHARE=$(first "$PREFIX/share/mysql" "$PREFIX/share/mariadb" "$PREFIX/share")
PLUGINS=$(first "$PREFIX/lib/mysql/plugin" "$PREFIX/lib/plugin" "$PREFIX/lib64/mysql/plugin" "$PREFIX/lib64/plugin")
INSTALL_DB=$(first "$PREFIX/bin/mariadb-install-db" "$PREFIX/scripts/mariadb-install-db" "$PREFIX/scripts/mysql_install_db")

# A header that the server's build makes from its .in file; ours is a copy in a folder of its own.
mkdir -p build/include
cp "$MARIADB_SRC/include/probes_mysql_nodtrace.h.in" build/include/probes_mysql_nodtrace.h

S=$MARIADB_SRC
INCLUDES="-isystem $ROOT/build/include -isystem $INC -isystem $S/include -isystem $S/sql -isystem $S/libmariadb/include"
INCLUDES="$INCLUDES -isystem $S/wsrep-lib/include -isystem $S/wsrep-lib/wsrep-API/v26"
vars=(
    "MARIADB_SRC=$MARIADB_SRC"                  # unpacked source tree
    "ESKER_MARIADB_VERSION=$VERSION"            # of server and source
    "ESKER_MARIADBD=$SERVER"                    # the server
    "ESKER_MARIADB_PREFIX=$PREFIX"
    "ESKER_CLIENT_DIR=$CLIENTDIR"               # mariadb, mariadb-admin, mariadb-binlog ...
    "ESKER_SHARE_DIR=$SHARE"                    # messages, mysql-test
    "ESKER_PLUGIN_DIR=$PLUGINS"                 # the server's own plugins (ha_rocksdb.so)
    "ESKER_INSTALL_DB=$INSTALL_DB"
    "ESKER_INCLUDES=$INCLUDES"
    "ESKER_SERVICES_LIB=$SERVICES"
    "ESKER_ASKED=$ASKED"                        # what MARIADB_SRC and MARIADB_BIN said when this was written
)
{ echo "# written by scripts/setup.sh"; for v in "${vars[@]}"; do echo "${v%%=*} := ${v#*=}"; done; } >build/env.mk
{ echo "# written by scripts/setup.sh"; for v in "${vars[@]}"; do printf '%s=%q\n' "${v%%=*}" "${v#*=}"; done; } >build/env.sh
say "ready: MariaDB $VERSION, source in $MARIADB_SRC, $(rustc --version | cut -d' ' -f1,2)"

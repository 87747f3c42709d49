#!/usr/bin/env bash
# install.sh: puts the plugin and a configuration file into the system's MariaDB, or takes them out again.
#   install.sh install     ha_esker.so into the server's plugin folder, esker.cnf into its configuration folder
#   install.sh uninstall   removes both; tables and their data stay
# DESTDIR= is honoured. The server must be restarted afterwards, by you.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -r build/env.sh ] || { echo "install: build/env.sh is missing; run 'make setup' first" >&2; exit 1; }
. build/env.sh
DEST=${DESTDIR:-}
PLUGINS=$DEST$ESKER_PLUGIN_DIR
if [ "$ESKER_MARIADB_PREFIX" = /usr ]; then CONF=$DEST/etc/mysql/mariadb.conf.d; else CONF=$DEST$ESKER_MARIADB_PREFIX/etc; fi
can_write() { [ -w "$1" ] || { [ ! -e "$1" ] && mkdir -p "$1" 2>/dev/null; } || { echo "install: cannot write to $1; run as root, e.g. sudo make install" >&2; exit 1; }; }

case ${1:-} in
install)
    [ -r build/ha_esker.so ] || { echo "install: build/ha_esker.so is missing; run 'make build' first" >&2; exit 1; }
    have=$("$ESKER_MARIADBD" --no-defaults --version | sed -nE 's/.*Ver ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p')
    built=$(cat build/ha_esker.version 2>/dev/null || echo unknown)
    [ "$have" = "$built" ] || { echo "install: the plugin was built for MariaDB $built, the server is $have; run 'make setup build' again" >&2; exit 1; }
    can_write "$PLUGINS"; can_write "$CONF"
    install -m 644 build/ha_esker.so "$PLUGINS/.ha_esker.so.new" && mv "$PLUGINS/.ha_esker.so.new" "$PLUGINS/ha_esker.so"
    cat >"$CONF/esker.cnf" <<'CNF'
# Esker, a transactional storage engine (ENGINE=Esker). Removed by 'make uninstall'.
[mariadbd]
plugin_load_add = ha_esker
# Esker declares itself beta; the server's default accepts gamma and stable only.
plugin_maturity = beta
# With loose_ the server starts even where it refuses the plugin, as one that was upgraded does until the plugin is built anew.
# loose_esker_memory_limit = 1G
# loose_esker_flush_log_at_trx_commit = 1
CNF
    echo "installed: $PLUGINS/ha_esker.so and $CONF/esker.cnf (for MariaDB $built)"
    echo "restart the server to load it:  sudo systemctl restart mariadb    then:  SHOW ENGINES;"
    ;;
uninstall)
    can_write "$PLUGINS"; can_write "$CONF"
    rm -f "$PLUGINS/ha_esker.so" "$CONF/esker.cnf"
    echo "removed: $PLUGINS/ha_esker.so and $CONF/esker.cnf; restart the server. Esker's tables and data were left in the data folder."
    ;;
*) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

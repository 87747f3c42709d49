"""The report of bench/commit.py, and what both name."""
from frame import SHOWN, head, ratio, targets, text

KNOWN = ["Esker", "InnoDB", "RocksDB", "BLACKHOLE"]
# Microseconds of a flush and the file system; None: no device of our own.
DISKS = {"2ms-ext4": (2000, "ext4"), "2ms-xfs": (2000, "xfs"), "30ms-ext4": (30_000, "ext4"), "30ms-xfs": (30_000, "xfs"), "disk": None, "tmpfs": None}
CLIENTS = [1, 8, 64, 256, 512]
OVERWRITE = "overwrite"
# Inserts of `unused`, by one connection, whose system calls are counted.
CALLS_OF = 2000


def esker_syncs(found):
    """Of its log."""
    return found.get("Esker_wal_syncs", found.get("Esker_syncs_wal"))


def in_words(disk):
    """The name of a disk, for a heading."""
    if DISKS[disk]:
        return f"a flush of {DISKS[disk][0] // 1000} ms, {DISKS[disk][1]}"
    return "the disk as it is" if disk == "disk" else disk


def better(by):
    """The better of InnoDB's and MyRocks' medians, or None."""
    rates = [by[n]["median"] for n in ("InnoDB", "RocksDB") if n in by]
    return max(rates) if rates else None


def middle(by, name):
    """The median, or None."""
    return by[name]["median"] if name in by else None


def rate_lines(found):
    """A table for each disk, mode and driver."""
    lines = []
    for disk, mode, driver, cells in cells_of(found):
        names = [n for n in [*KNOWN, OVERWRITE] if any(n in by for by in cells.values())]
        lines += [f"## Commits a second: {in_words(disk)}, binlog {mode}" + (", sysbench oltp_insert" if driver == "sysbench" else ""), "",
                  "| clients | " + " | ".join("4 KiB overwrite, fdatasync" if n == OVERWRITE else SHOWN.get(n, n) for n in names) + " | Esker to InnoDB | to the better | to BLACKHOLE | spread of Esker's |",
                  "|--:|" + "--:|" * (len(names) + 4)]
        for n, by in cells.items():
            own = middle(by, "Esker")
            spread = by.get("Esker", {}).get("samples")
            lines.append(f"| {n} | " + " | ".join(text(middle(by, x), 0) for x in names) + f" | {text(ratio(own, middle(by, 'InnoDB')))} | {text(ratio(own, better(by)))} | "
                         f"{text(ratio(own, middle(by, 'BLACKHOLE')))} | {f'{min(spread):,.0f} to {max(spread):,.0f}' if spread else '-'} |")
        lines.append("")
    return lines


def cells_of(found):
    """(disk, mode, driver, cells) of all rates there are."""
    return [(disk, mode, driver, cells) for disk, modes in found.get("rates", {}).items() for mode, drivers in modes.items() for driver, cells in drivers.items()]


def rate_targets(disk, mode, driver, cells):
    """Rows of targets() for one table."""
    rows, slow = [], bool(DISKS[disk])
    where = f"{disk}, binlog {mode}{', sysbench' if driver == 'sysbench' else ''}, "
    for n, by in ((int(n), by) for n, by in cells.items()):
        if "Esker" not in by or n not in CLIENTS:
            continue
        own, who = by["Esker"]["median"], f"{where}{n} client{'s' if n > 1 else ''}: "
        if n == 1 and slow:
            rows.append((who + "of a 4 KiB overwrite", "least", 0.95, ratio(own, middle(by, OVERWRITE))) if mode == "off" else (who + "of InnoDB", "least", 1.0, ratio(own, middle(by, "InnoDB"))))
        elif n == 1:
            rows.append((who + "of the better", "least", 1.0, ratio(own, better(by))))
        elif slow or n <= 256:
            rows.append((who + "of the better", "least", (1.4 if n <= 64 else 1.2) if slow else 1.15, ratio(own, better(by))))
        if slow and mode == "on" and n >= 64:
            rows.append((who + "of BLACKHOLE", "least", 0.6, ratio(own, middle(by, "BLACKHOLE"))))
    return rows


def source_lines(found):
    """The tables of 4 to 128 clients."""
    lines = []
    for disk, modes in found.get("source", {}).items():
        for mode, rows in modes.items():
            lines += [f"## A number of inserts: {in_words(disk)}, binlog {mode}", "",
                      "By mariadb-slap, which makes its connections in this time, too. Log syncs asked for and done are the engine's own counters (a dash: it has none). The last two "
                      "columns are of a round of their own under strace, half as long: syncs of the engine's log files and of the binlog for 1,000 inserts.", "",
                      "| engine | clients | queries | s | a second | log syncs asked for | done | binlog bytes | binlog commits | group commits | log syncs, strace | binlog syncs, strace |", "|---|" + "--:|" * 11]
            for r in rows:
                outside = r.get("outside")
                seen = [text(outside[k] / outside["queries"] * 1000, 1) if outside else "-" for k in ("log", "binlog")]
                binlog = [text(r[k] if mode == "on" else None, 0) for k in ("binlog_bytes", "commits", "groups")]
                lines.append(f"| {SHOWN.get(r['engine'], r['engine'])} | {r['clients']} | {r['queries']:,} | {r['took_s']:.2f} | {r['rate']:,.0f} | {text(r['syncs_asked'], 0)} | {text(r['syncs_done'], 0)} | "
                             + " | ".join(binlog + seen) + " |")
            lines.append("")
    return lines


def count_lines(found):
    """Esker's syncs for groups of the binlog."""
    lines = []
    for disk, cells in found.get("counts", {}).items():
        lines += [f"## Esker alone: {in_words(disk)}, binlog on", "",
                  "| clients | commits a second | prepared | groups of the binlog | syncs of Esker's log | asked for | met by another's | for a group of the binlog |", "|--:|" + "--:|" * 7]
        for n, one in cells.items():
            by = one["counters"]
            lines.append(f"| {n} | {one['rate']:,.0f} | {text(by.get('Esker_prepares'), 0)} | {by['Binlog_group_commits']:,} | {esker_syncs(by):,} | {text(by.get('Esker_wal_sync_requests'), 0)} | "
                         f"{text(by.get('Esker_wal_syncs_covered'), 0)} | {text(ratio(esker_syncs(by), by['Binlog_group_commits']), 3)} |")
        lines += ["", "One for each group is the prepare's; were there any in commit, there would be more.", ""]
    return lines


def most_different(calls):
    """Of the calls that the connection's thread makes at least every tenth insert, the largest difference of the counts, as a share; those that wait are
    left out: they depend on who comes first."""
    a, b = calls["loaded"]["thread"], calls["without"]["thread"]
    often = [n for n in {*a, *b} - {"futex", "poll"} if max(a.get(n, 0), b.get(n, 0)) >= CALLS_OF / 10]
    return max((abs(a.get(n, 0) - b.get(n, 0)) / max(a.get(n, 0), b.get(n, 0)) for n in often), default=None)


def unused_lines(found):
    """With Esker loaded and without."""
    lines = []
    for mode, one in found.get("unused", {}).items():
        lines += [f"## InnoDB with Esker loaded and unused, to InnoDB without it: binlog {mode}", ""]
        if "ratio" in one:
            lines += [f"{len(one['ratios'])} ABBA pairs: {one['ratio']:.3f}, 95 percent interval {one['low']:.3f} to {one['high']:.3f}.", ""]
        if "calls" in one:
            a, b = one["calls"]["loaded"], one["calls"]["without"]
            lines += [f"System calls for {one['calls_of']:,} inserts by one connection, without those that found nothing (EAGAIN):", "",
                      "| | its thread, loaded | its thread, without | whole server, loaded | whole server, without |", "|---|--:|--:|--:|--:|"]
            for call in sorted({*a["server"], *b["server"]}, key=lambda x: -b["server"].get(x, 0)):
                lines.append(f"| {call} | " + " | ".join(f"{by.get(call, 0):,}" for by in (a["thread"], b["thread"], a["server"], b["server"])) + " |")
            lines.append("")
    return lines


def other_targets(found):
    """Rows of targets() of counts and unused."""
    rows = [(f"{disk}, {n} clients: syncs of Esker's log for a group of the binlog", "most", 1.05, ratio(esker_syncs(one["counters"]), one["counters"]["Binlog_group_commits"]))
            for disk, cells in found.get("counts", {}).items() for n, one in cells.items()]
    for mode, one in found.get("unused", {}).items():
        if "ratio" in one:
            rows += [(f"unused, binlog {mode}: low end of the interval", "most", 1.0, one["low"]), (f"unused, binlog {mode}: high end of the interval", "least", 1.0, one["high"])]
        if "calls" in one:
            rows.append((f"unused, binlog {mode}: largest difference of a system call's counts", "most", 0.01, most_different(one["calls"])))
    return rows


def markdown(found):
    """The whole report."""
    lines = ["# Durable commits of one row", "", head(found, f"{found['rounds']} interleaved rounds of {found['seconds']} s a cell, medians"), ""]
    for what, why in found.get("skipped", {}).items():
        lines += [f"SKIPPED {what}: {why}.", ""]
    lines += rate_lines(found) + count_lines(found) + unused_lines(found) + source_lines(found)
    rows = [row for cell in cells_of(found) for row in rate_targets(*cell)] + other_targets(found)
    return lines + (targets(rows) if rows else [])

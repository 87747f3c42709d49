"""Turns a benchmark's results into a Markdown table with targets, and one picture (SVG, written by hand)."""

MIB = 1 << 20
SHOWN = {"RocksDB": "MyRocks", "BLACKHOLE": "BLACKHOLE (SQL layer alone)", "Esker-FIXED": "Esker ROW_FORMAT=FIXED",
         "Esker-lz4": "Esker COMPRESSION=lz4", "Esker-zstd": "Esker COMPRESSION=zstd", "Esker-none": "Esker COMPRESSION=none"}


def rounds_text(results):
    """How often what was measured."""
    rounds, slow = results["rounds"], results.get("slow_rounds", results["rounds"])
    return f"{rounds} interleaved rounds" + (f" ({slow} of all but Esker, MyISAM and BLACKHOLE)" if slow < rounds else "")


def _get(results, *keys):
    for key in keys:
        if not isinstance(results, dict) or key not in results:
            return None
        results = results[key]
    return results


def _figure(results, name, kind, what):
    return _get(results, "load", name, kind, what, "median")


def _ratio(a, b):
    return None if a is None or not b else a / b


def targets(results):
    """[(what, target, measured as text, met or None)]."""
    out = []

    def at_most(what, value, limit, text=lambda v: f"{v:.2f}"):
        out.append((what, f"≤ {text(limit)}", "-" if value is None else text(value), None if value is None else value <= limit))

    def at_least(what, value, limit, text=lambda v: f"{v:.2f}"):
        out.append((what, f"≥ {text(limit)}", "-" if value is None else text(value), None if value is None else value >= limit))
    for kind in ("char", "varchar"):
        esker = _figure(results, "Esker", kind, "load_s")
        at_most(f"load, {kind.upper()}: of MyISAM's time", _ratio(esker, _figure(results, "MyISAM", kind, "load_s")), 0.85)
        at_most(f"load, {kind.upper()}: of the SQL layer's time alone", _ratio(esker, _figure(results, "BLACKHOLE", kind, "load_s")), 1.25)
        at_least(f"load, {kind.upper()}: times as fast as InnoDB", _ratio(_figure(results, "InnoDB", kind, "load_s"), esker), 4)
        at_least(f"load, {kind.upper()}: times as fast as MyRocks", _ratio(_figure(results, "RocksDB", kind, "load_s"), esker), 8)
    for kind, limit in (("char", 1.0), ("varchar", 0.6)):
        at_most(f"scan, {kind.upper()}: of MyISAM's time", _ratio(_figure(results, "Esker", kind, "scan_s"), _figure(results, "MyISAM", kind, "scan_s")), limit)
    for kind in ("varchar", "blob"):
        r = _get(results, "clients", "Esker", kind)
        cores = min(8, r["cores"]) if r else 2
        at_least(f"eight clients scan, {kind.upper()}: work per second, of one client's", r and r["speedup"], 0.9 * cores)
        if r and r["contention"]:
            at_most(f"eight clients scan, {kind.upper()}: contended lock operations", sum(r["contention"].values()), 0, lambda v: f"{v:,.0f}")
    for kind in ("char", "varchar"):
        at_most(f"size, {kind.upper()}: of MyISAM's", _ratio(_figure(results, "Esker", kind, "size_bytes"), _figure(results, "MyISAM", kind, "size_bytes")), 1.0)
        at_most(f"size, {kind.upper()}: of InnoDB's", _ratio(_figure(results, "Esker", kind, "size_bytes"), _figure(results, "InnoDB", kind, "size_bytes")), 0.5)
    for kind in ("char", "varchar"):
        at_most(f"bytes written per byte stored, {kind.upper()}", _ratio(_figure(results, "Esker", kind, "written_bytes"), _figure(results, "Esker", kind, "size_bytes")), 1.05)
    for kind in ("char", "varchar"):
        m = _get(results, "memory", "Esker", kind)
        at_most(f"memory growth during the load, {kind.upper()}", m and m["growth_bytes"], 256 * MIB, lambda v: f"{v / MIB:.0f} MiB")
        at_most(f"memory 10 s after DROP above the start, {kind.upper()}", m and m["after_drop_bytes"], max(20 * MIB, m["start_bytes"] * 0.05) if m else 20 * MIB, lambda v: f"{v / MIB:.0f} MiB")
    at_most("ROLLBACK of the whole insert", _get(results, "rollback", "rollback_s", "median"), 0.1, lambda v: f"{v * 1000:.1f} ms")
    restart = [v for v in (_get(results, "rollback", k, "median") for k in ("restart_mid_s", "restart_end_s")) if v is not None]
    at_most("restart after SIGKILL during it", max(restart) if restart else None, 5.0, lambda v: f"{v:.2f} s")
    for name in ("MyISAM", "InnoDB"):
        # Processor time: what the plugin costs a neighbour; the wall clock's noise is larger than what is looked for.
        at_most(f"{name} with Esker loaded: of the processor time without", _get(results, "neighbours", name, "cpu_s_ratio"), 1.03, lambda v: f"{v:.3f}")
    return out


def markdown(results):
    """The whole report."""
    m = results["machine"]
    lines = [f"# {results['rows']:,} rows of 103 bytes: Esker beside the others", "",
             f"MariaDB {results['mariadb']}, {m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']}; "
             f"{rounds_text(results)}, medians; {results['date']}.",
             "Load: INSERT ... SELECT from a MyISAM table, durable when it returns. Scan: COUNT(*) with a condition that no row meets, warm.",
             "Absolute figures drift from machine to machine; the ratios (to MyISAM) are what counts.", ""]
    names = list(results.get("load", {}))
    if names:
        lines += ["| engine | CHAR: load s | ratio | scan s | ratio | MB | VARCHAR: load s | ratio | scan s | ratio | MB |", "|---|" + "---:|" * 10]
        for name in names:
            cells = [f"**{name}**" if name == "Esker" else SHOWN.get(name, name)]
            for kind in ("char", "varchar"):
                for what, digits in (("load_s", 2), ("scan_s", 3)):
                    value = _figure(results, name, kind, what)
                    ratio = _ratio(value, _figure(results, "MyISAM", kind, what))
                    cells += ["" if value is None else f"{value:.{digits}f}", "" if ratio is None else f"{ratio:.2f}"]
                size = _figure(results, name, kind, "size_bytes")
                cells.append("" if size is None else f"{size / 1e6:,.0f}")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## Targets", "", "| what | target | measured | met |", "|---|---:|---:|---|"]
    lines += [f"| {a} | {b} | {c} | {'-' if d is None else 'yes' if d else '**no**'} |" for a, b, c, d in targets(results)]
    return "\n".join(lines) + "\n"


def _esc(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;")


def svg(results):
    """Five panels of bars: load and scan for both kinds of columns, and size."""
    names = [n for n in results.get("load", {}) if n != "BLACKHOLE"]
    panels = [("Load, CHAR columns (seconds)", "char", "load_s", 1, "{:.1f}"), ("Load, VARCHAR columns (seconds)", "varchar", "load_s", 1, "{:.1f}"),
              ("Full scan, CHAR columns (seconds)", "char", "scan_s", 1, "{:.2f}"), ("Full scan, VARCHAR columns (seconds)", "varchar", "scan_s", 1, "{:.2f}"),
              ("Size, CHAR columns (MB)", "char", "size_bytes", 1e-6, "{:,.0f}"), ("Size, VARCHAR columns (MB)", "varchar", "size_bytes", 1e-6, "{:,.0f}")]
    width, bar, gap, label = 440, 18, 7, 112
    panel_height = 34 + len(names) * (bar + gap) + 14
    total_w, total_h = 2 * width + 60, 70 + 3 * panel_height + 34
    short = {"RocksDB": "MyRocks", "Esker-FIXED": "Esker FIXED", "Esker-lz4": "Esker lz4", "Esker-zstd": "Esker zstd", "Esker-none": "Esker none"}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_w} {total_h}" width="{total_w}" height="{total_h}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
           f'<rect width="{total_w}" height="{total_h}" rx="10" fill="#ffffff"/>',
           f'<text x="24" y="34" font-size="19" font-weight="600" fill="#1d2733">{results["rows"]:,} rows of 103 bytes in one MariaDB {_esc(results["mariadb"])} server</text>',
           f'<text x="24" y="55" font-size="13" fill="#5b6875">Shorter is better. {results["rounds"]} interleaved rounds, medians; {results["machine"]["cores"]} cores.</text>']
    for i, (title, kind, what, factor, form) in enumerate(panels):
        x, y = 24 + (i % 2) * (width + 14), 76 + (i // 2) * panel_height
        out.append(f'<text x="{x}" y="{y + 16}" font-size="14" font-weight="600" fill="#1d2733">{title}</text>')
        values = {n: _figure(results, n, kind, what) for n in names}
        most = max([v for v in values.values() if v] or [1])
        for j, name in enumerate(names):
            top, value = y + 28 + j * (bar + gap), values[name]
            own = name == "Esker"
            fill = "#0b7285" if own else "#74b8c4" if name.startswith("Esker") else "#b8c1cb"
            weight = ' font-weight="600"' if own else ""
            out.append(f'<text x="{x + label - 8}" y="{top + 13}" font-size="12.5" text-anchor="end" fill="#1d2733"{weight}>{_esc(short.get(name, name))}</text>')
            if value is None:
                continue
            length = max((width - label - 64) * value / most, 1.5)
            out.append(f'<rect x="{x + label}" y="{top}" width="{length:.1f}" height="{bar}" rx="3" fill="{fill}"/>')
            out.append(f'<text x="{x + label + length + 6:.1f}" y="{top + 13}" font-size="12" fill="#1d2733"{weight}>{form.format(value * factor)}</text>')
    out.append(f'<text x="24" y="{total_h - 14}" font-size="11.5" fill="#5b6875">Load: INSERT ... SELECT from a MyISAM table, durable commit. Scan: COUNT(*) with a condition that no row meets, warm cache.</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def write(results, path):
    """path.md and path.svg."""
    with open(path + ".md", "w") as f:
        f.write(markdown(results))
        for note in results.get("notes", []):
            f.write(f"\nNote: {note}\n")
    if results.get("load"):
        with open(path + ".svg", "w") as f:
            f.write(svg(results))

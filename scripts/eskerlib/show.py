"""Progress lines and tables on a terminal or in a file."""
import sys
import time

_begin = time.monotonic()


def say(text):
    """A line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - _begin:7.1f} s] {text}", flush=True)


_last = {"time": 0.0, "text": None}


def progress(text):
    """Progress that overwrites itself on a terminal; elsewhere a line every 5 seconds and the last one."""
    if sys.stdout.isatty():
        print(f"\r[{time.monotonic() - _begin:7.1f} s] {text}\033[K", end="", flush=True)
    elif time.monotonic() - _last["time"] > 5:
        _last.update(time=time.monotonic(), text=None)
        say(text)
    else:
        _last["text"] = text


def end_progress():
    """Leave the line that progress() overwrites."""
    if sys.stdout.isatty():
        print(flush=True)
    elif _last["text"]:
        say(_last["text"])
        _last["text"] = None


def table(head, rows):
    """A table with aligned columns; the first column is text."""
    cells = [[str(c) for c in row] for row in [head] + rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for n, row in enumerate(cells):
        lines.append("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())
        if n == 0:
            lines.append("  ".join("-" * w for w in widths))
    return "\n".join(lines)


def number(value, digits=2):
    """A figure, or a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"

"""The lab's pages in a real browser (headless Chromium): the plots are visible, nothing fails. Measures tiny reports, opens
their pages, and pages with planted faults. Needs target/release/esker. scripts/lab_pictures.py takes pictures in the same way.
"""
import json
import os
import re

import pytest

import pages

# name, arguments; each must give plots. Small, but with every kind of plot.
REPORTS = [
    ("buffer", ["buffer", "--records", "5000", "--from", "512", "--to", "64K"]),
    ("io", ["io", "--records", "5000"]),
    ("sync", ["sync", "--count", "5", "--threads", "1,2,3,4"]),
    ("commit", ["commit", "--threads", "1,2,3,4", "--commits", "20"]),
    ("commit-bars", ["commit", "--threads", "1,16", "--commits", "20"]),
    ("trace", ["trace", "--reads", "200"]),
    ("locks", ["locks", "--threads", "1,2,3,4", "--count", "2000"]),
    ("recovery", ["recovery", "--records", "100,200,300,400"]),
]

WIDTHS = [1100, 800, 400]


@pytest.fixture(scope="module")
def folder():
    """With a report of every command, NAME.json, and what 'all' would print: the reports in one."""
    with pages.folder() as made:
        reports = []
        for name, arguments in REPORTS:
            text = pages.lab(made, arguments)
            reports.append(json.loads(text))
            with open(os.path.join(made, name + ".json"), "w") as f:
                f.write(text)
        with open(os.path.join(made, "all.json"), "w") as f:
            json.dump({"schema": "esker-lab", "schema_version": 1, "command": "all", "reports": reports}, f)
        yield made


@pytest.mark.parametrize("names", [(name,) for name, _ in REPORTS] + [("all",), ("io", "io"), ("commit", "commit")], ids="+".join)
def test_page(folder, names):
    """Of every command, of all in one, of two reports with bars and with lines; on a desk, a tablet and a telephone."""
    page = pages.page_of(folder, *names)
    for width in WIDTHS:
        wrong, plots = pages.faults(folder, page, width)
        assert not wrong, f"{width} pixels"
    print(f"{plots} plots ", end="")


PLANTED = {
    "plot without size": ("<svg ", '<svg style="width:0;height:0" ', "0 x 0 pixels"),
    "error": ("</body>", "<script>undefined.x</script></body>", "error: "),
    "empty plot": (r"<svg (.*?)>.*?</svg>", r"<svg \1></svg>", "0 of 0 shapes"),
    "wider than the window": ("</body>", "<div style='width:3000px'>x</div></body>", "wider than its window"),
    "too small": ("svg text{font:12px", "svg text{font:5px", "too small to read"),
    "text outside": ("</svg>", '<text x="600" y="20">far</text></svg>', "'far' leaves"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault(folder, fault):
    """A page that is wrong is found."""
    search, replace, must_fail = PLANTED[fault]
    page = re.sub(search, replace, pages.page_of(folder, "io"), count=1, flags=re.S)
    assert any(must_fail in wrong for wrong in pages.faults(folder, page)[0])

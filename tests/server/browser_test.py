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
    ("io", ["io", "--records", "100000"]),
    ("sync", ["sync", "--count", "5", "--threads", "1,2,3,4", "--min-time", "0"]),
    ("commit", ["commit", "--threads", "1,2,3,4", "--commits", "20", "--min-time", "0"]),
    ("commit-bars", ["commit", "--threads", "1,16", "--commits", "20", "--min-time", "0"]),
    ("trace", ["trace", "--reads", "200"]),
    ("locks", ["locks", "--threads", "1,2,3,4", "--count", "2000"]),
    ("recovery", ["recovery", "--records", "100,200,300,800"]),
]

WIDTHS = [1400, 800, 400]


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
    """Of every command, of all in one, of two reports with bars and with lines; on a desk, a tablet and a telephone. One
    legend, if any, but for what has more lines than there are colours."""
    page = pages.page_of(folder, *names)
    assert page.count("<div class=legend") <= 1
    if names[0] == "io":
        assert page.count("<b>processor time: ") == 3, "of writing, of reading cold and warm"
    wrong, plots = pages.faults(folder, page, WIDTHS)
    assert not wrong
    print(f"{plots} plots ", end="")


def session(statements):
    """A session's trace: reads from a device in three modes, waits within others, a plan, calls; long names and texts."""
    lines = ["TRACE version=1 conn=7 user='app@localhost' server='10.11.18-MariaDB' esker='0.1.0' began='2026-11-27T02:30:00Z' level=FULL tim=0",
             "FILE file=19 path='#esker/00000019.run' obj='shop.orders/by_date_and_customer_and_region'"]
    at = 0
    for q in range(1, statements + 1):
        text = f"SELECT {'customer_name_and_address, ' * 30}{'x' * 300} FROM orders WHERE d > {q} LIMIT {q}"
        lines.append(f"STATEMENT q={q} s={q} tim={at} db=shop text='{text}'")
        tim = at + 10
        for n in range(300):
            ela = [9, 250, 1500][n % 3] + n % 7
            lines.append(f"WAIT tim={tim} q={q} s={q} nam='db file sequential read' class='User I/O' ela={ela} from=device file=19 "
                         f"block={n * 40} blocks=4 bytes=16384 obj='shop.orders/by_date_and_customer_and_region' cpu=1 ready=0.5")
            tim += ela + 2
        lines.append(f"WAIT tim={tim} q={q} s={q} nam='log file device sync' class=Commit ela=700 in=1")
        lines.append(f"WAIT tim={tim} q={q} s={q} nam='log file sync' class=Commit ela=900")
        lines.append(f"CALL tim={at + 3} q={q} s={q} tab=shop.orders fn=index_next x={10 ** 6}")
        lines.append(f"PLAN q={q} s={q} text='id\\tselect_type\\ttable\\ttype\\tkey\\trows\\tr_rows\\tExtra'")
        lines.append(f"PLAN q={q} s={q} text='1\\tSIMPLE\\torders\\trange\\tby_date\\t120000\\t17.00\\tUsing index condition; Using where'")
        ela = tim - at + 200_000
        lines.append(f"END q={q} s={q} tim={at + ela} ela={ela} cpu=90000 engine=40000 ready=3000 waits_cpu=300 waits_ready=150 rows=17 "
                     f"events=303 dropped=0 overhead=90 blocks_cached=17 blocks_missed=300 commit='read only'")
        at += ela + 1000
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("statements", [1, 4])
def test_page_of_a_session(folder, statements):
    """What 'esker trace --html' writes, of one statement and of several."""
    page = pages.session_page(folder, session(statements))
    for heading in ("<th>seconds<th>%<th>count", "mean us", "max us", "median of each mode"):
        assert heading in page, heading
    wrong, plots = pages.faults(folder, page, WIDTHS)
    assert not wrong
    print(f"{plots} plots ", end="")


PLANTED = {
    "plot without size": ("<svg ", '<svg style="width:0;height:0" ', "0 x 0 pixels"),
    "error": ("</body>", "<script>undefined.x</script></body>", "error: "),
    "empty plot": (r"<svg (.*?)>.*?</svg>", r"<svg \1></svg>", "0 of 0 shapes"),
    "wider than the window": ("</body>", "<div style='width:3000px'>x</div></body>", "wider than its window"),
    "too small": ("svg text{font:12px", "svg text{font:5px", "too small to read"),
    "text on text": ("</svg>", '<text x="100" y="100">one text</text><text x="110" y="102">another</text></svg>', "lies on"),
    "word wider than its place": ("</h1>", "<br>" + "w" * 300 + "</h1>", "is wider than its place"),
    "text outside": ("</svg>", '<text x="600" y="20">far</text></svg>', "'far' leaves"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault(folder, fault):
    """A page that is wrong is found."""
    search, replace, must_fail = PLANTED[fault]
    page = re.sub(search, replace, pages.page_of(folder, "io"), count=1, flags=re.S)
    assert any(must_fail in wrong for wrong in pages.faults(folder, page)[0])

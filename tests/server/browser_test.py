#!/usr/bin/python3
"""browser_test.py: the lab's pages in a real browser (headless Chromium): the plots are visible, nothing fails.

    tests/server/browser_test.py                  measures tiny reports, opens their pages, and pages with planted faults
    tests/server/browser_test.py --pictures DIR   measures and writes the pictures of docs/LAB.md: DIR/lab-*.png

A script of the test, put into each page, tells of every svg element its size, of the shapes in it how many have one, and
which texts leave the picture; errors of scripts and what does not load are caught. Needs target/release/esker.
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ESKER = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "esker")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars", "--enable-logging=stderr"]
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
PICTURES = [
    ("lab-buffer", ["buffer", "--records", "500000", "--from", "256", "--to", "16M", "--runs", "5"], 1010),
    ("lab-commit", ["commit", "--threads", "1,2,4,8,16,32", "--commits", "2000", "--runs", "5"], 1010),
]
# Errors are caught before the page's own scripts run; the rest is looked at when all is there.
CATCH = """<script>window.found={errors:[],svgs:[]};
addEventListener("error",e=>found.errors.push(e.message||"not loaded: "+(e.target.src||e.target.href)),true);</script>"""
LOOK = """<script>addEventListener("load",()=>{
for(const svg of document.querySelectorAll("svg")){
  const box=svg.getBoundingClientRect(),shapes=[...svg.querySelectorAll("rect,circle,polyline")],texts=[...svg.querySelectorAll("text")];
  const sized=s=>{const b=s.getBoundingClientRect();return b.width>0&&b.height>0};
  const seen=s=>{const c=getComputedStyle(s);return c.visibility==="visible"&&c.display!=="none"&&(c.fill!=="none"||c.stroke!=="none")};
  const out=t=>{const b=t.getBoundingClientRect();return b.left<box.left-1||b.right>box.right+1||b.top<box.top-1||b.bottom>box.bottom+1};
  found.svgs.push({width:box.width,height:box.height,visible:seen(svg),shapes:shapes.length,
    drawn:shapes.filter(s=>sized(s)&&seen(s)).length,out:texts.filter(out).map(t=>t.textContent)});
}
const pre=document.createElement("pre");pre.id="browser-test";pre.textContent=JSON.stringify(found);document.body.append(pre);});</script>"""


def lab(folder, arguments):
    """A report, as text; noise is no fault here."""
    os.makedirs(os.path.join(folder, "lab-data"), exist_ok=True)
    runs = [] if "--runs" in arguments else ["--runs", "2"]
    p = subprocess.run([ESKER, "lab", *arguments, *runs, "--dir", "lab-data", "--json"], cwd=folder, capture_output=True, text=True)
    if p.returncode not in (0, 3):
        sys.exit(f"browser_test: esker lab {' '.join(arguments)} ended with {p.returncode}: {p.stderr}")
    return p.stdout


def page_of(folder, *names):
    """The page of one report or two."""
    return subprocess.run([ESKER, "lab", "report", *(n + ".json" for n in names)], cwd=folder, capture_output=True, text=True, check=True).stdout


def chromium(folder, *arguments):
    """Chromium with a profile of its own, which is gone afterwards."""
    profile = tempfile.mkdtemp(dir=folder)
    try:
        return subprocess.run(["chromium", *FLAGS, f"--user-data-dir={profile}", *arguments], cwd=folder, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=60)
    finally:
        shutil.rmtree(profile, ignore_errors=True)


def faults(folder, page):
    """What is wrong with a page; and how many plots it has."""
    path = os.path.join(folder, "page.html")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page.replace("<head>", "<head>" + CATCH, 1).replace("</body>", LOOK + "</body>", 1))
    p = chromium(folder, "--window-size=1100,800", "--dump-dom", "file://" + path)
    told = re.search(r'<pre id="browser-test">(.*?)</pre>', p.stdout, re.S)
    if not told:
        return [f"the page was not loaded: {p.stderr[-500:]}"], 0
    found = json.loads(html.unescape(told.group(1)))
    wrong = [f"error: {e}" for e in found["errors"]]
    wrong += [line for line in p.stderr.splitlines() if "CONSOLE" in line and "Uncaught" in line]
    for n, svg in enumerate(found["svgs"]):
        if svg["width"] < 100 or svg["height"] < 30 or not svg["visible"]:
            wrong.append(f"plot {n} is {svg['width']:.0f} x {svg['height']:.0f} pixels")
        if not svg["shapes"] or not svg["drawn"]:
            wrong.append(f"plot {n}: {svg['drawn']} of {svg['shapes']} shapes can be seen")
        wrong += [f"plot {n}: '{t}' leaves the picture" for t in svg["out"]]
    if not found["svgs"]:
        wrong.append("no plot")
    return wrong, len(found["svgs"])


def all_of(folder):
    """What 'all' would print: the reports in one."""
    reports = []
    for name, _ in REPORTS:
        with open(os.path.join(folder, name + ".json")) as f:
            reports.append(json.load(f))
    return {"schema": "esker-lab", "schema_version": 1, "command": "all", "reports": reports}


def test(folder):
    """Pages of every command, of two reports, and pages that are wrong."""
    failed = 0

    def check(name, page, must_fail=None):
        nonlocal failed
        wrong, plots = faults(folder, page)
        good = any(must_fail in w for w in wrong) if must_fail else not wrong
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {name}: {plots} plots" + (f"; found: {'; '.join(wrong[:5])}" if wrong else ""), flush=True)

    for name, arguments in REPORTS:
        with open(os.path.join(folder, name + ".json"), "w") as f:
            f.write(lab(folder, arguments))
        check(name, page_of(folder, name))
    with open(os.path.join(folder, "all.json"), "w") as f:
        json.dump(all_of(folder), f)
    check("all", page_of(folder, "all"))
    check("two reports, bars", page_of(folder, "io", "io"))
    check("two reports, lines", page_of(folder, "commit", "commit"))
    good = page_of(folder, "io")
    check("planted: a plot without size", good.replace("<svg ", '<svg style="width:0;height:0" ', 1), "0 x 0 pixels")
    check("planted: an error", good.replace("</body>", "<script>undefined.x</script></body>"), "error: ")
    check("planted: an empty plot", re.sub(r"<svg (.*?)>.*?</svg>", r"<svg \1></svg>", good, count=1, flags=re.S), "0 of 0 shapes")
    check("planted: a text outside", good.replace("</svg>", '<text x="600" y="20">far</text></svg>', 1), "'far' leaves")
    print(f"{failed} failed" if failed else "all pages are as they must be")
    return failed


def pictures(folder, into):
    """The pictures of the documentation: the upper part of two pages."""
    for name, arguments, height in PICTURES:
        with open(os.path.join(folder, "this machine.json"), "w") as f:
            f.write(lab(folder, arguments))
        with open(os.path.join(folder, "page.html"), "w", encoding="utf-8") as f:
            f.write(page_of(folder, "this machine"))
        picture = os.path.join(os.path.abspath(into), name + ".png")
        chromium(folder, f"--window-size=1100,{height}", f"--screenshot={picture}", "file://" + os.path.join(folder, "page.html"))
        print(f"{picture}: {os.path.getsize(picture)} bytes")


def main():
    arguments = sys.argv[1:]
    if arguments and (len(arguments) != 2 or arguments[0] != "--pictures"):
        print(__doc__.strip())
        sys.exit(0 if arguments[0] in ("-h", "--help") else 2)
    for program in (ESKER, "chromium"):
        if not shutil.which(program):
            sys.exit(f"browser_test: {program} is missing; run 'make build'")
    # Below the build folder: what is measured is then a real file system.
    os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "build")) as folder:
        if arguments:
            pictures(folder, arguments[1])
        else:
            sys.exit(1 if test(folder) else 0)


if __name__ == "__main__":
    main()

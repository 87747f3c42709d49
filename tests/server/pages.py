"""The lab's pages: measuring reports, making pages of them, and looking at a page in headless Chromium.

A page is looked at in frames of several widths at once. A script of ours, put into each, tells of every svg element its
size, of the shapes in it how many have one, and which texts leave the picture or lie on each other; errors of scripts and
what does not load are caught.
"""
import html
import json
import os
import re
import shutil
import subprocess
import tempfile

from eskerlib import env

ESKER = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(env.ROOT, "target")), "release", "esker")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars", "--enable-logging=stderr"]
LONGEST_S = 120  # for Chromium to show a page
# Errors are caught before the page's own scripts run; the rest is looked at when all is there.
CATCH = """<script>window.found={errors:[],svgs:[]};
addEventListener("error",e=>found.errors.push(e.message||"not loaded: "+(e.target.src||e.target.href)),true);</script>"""
LOOK = """<script>addEventListener("load",()=>{
// Texts of one picture that lie on each other; upright ones are told by their boxes, too.
const boxes=e=>[...e.querySelectorAll("text")].filter(t=>t.textContent.trim()).map(t=>[t,t.getBoundingClientRect()]);
// Letters of a box of their own are cut at its rectangle.
const cut=(t,svg)=>{const of=t.closest("svg");return (of===svg?svg:of.querySelector("rect")).getBoundingClientRect()};
found.over=[];
for(const svg of document.querySelectorAll("body svg:not(svg svg)")){
  const all=boxes(svg).map(([t,b])=>{const c=cut(t,svg);return [t,{left:Math.max(b.left,c.left),right:Math.min(b.right,c.right),top:b.top,bottom:b.bottom}]});
  all.forEach(([s,a],i)=>all.slice(i+1).forEach(([t,b])=>{
    const wide=Math.min(a.right,b.right)-Math.max(a.left,b.left),high=Math.min(a.bottom,b.bottom)-Math.max(a.top,b.top);
    if(wide>1.5&&high>4)found.over.push(s.textContent+"' lies on '"+t.textContent)}));
}
for(const e of document.querySelectorAll("h1,h2,h3,p,pre,li,figcaption")){
  if(e.scrollWidth>e.clientWidth+1&&getComputedStyle(e).display!=="inline")found.over.push(e.textContent.slice(0,40)+"' is wider than its place, of '"+e.tagName)}
for(const svg of document.querySelectorAll("body svg:not(svg svg)")){
  const box=svg.getBoundingClientRect(),shapes=[...svg.querySelectorAll("rect,circle,polyline")],texts=[...svg.querySelectorAll("text")];
  const sized=s=>{const b=s.getBoundingClientRect();return b.width>0&&b.height>0};
  const seen=s=>{const c=getComputedStyle(s);return c.visibility==="visible"&&c.display!=="none"&&(c.fill!=="none"||c.stroke!=="none")};
  const out=t=>{if(t.closest("svg")!==svg)return false;const b=t.getBoundingClientRect();return b.left<box.left-1||b.right>box.right+1||b.top<box.top-1||b.bottom>box.bottom+1};
  const view=svg.viewBox.baseVal,scale=view&&view.width?box.width/view.width:1,small=texts.filter(t=>parseFloat(getComputedStyle(t).fontSize)*scale<9).map(t=>t.textContent);
  found.svgs.push({small,width:box.width,height:box.height,visible:seen(svg),shapes:shapes.length,
    drawn:shapes.filter(s=>sized(s)&&seen(s)).length,out:texts.filter(out).map(t=>t.textContent)});
}
found.wide=document.documentElement.scrollWidth-innerWidth;
found.inner=innerWidth;});</script>"""
# The frames are of the page's own origin, and loaded before it is.
GATHER = """<script>addEventListener("load",()=>{
const pre=document.createElement("pre");pre.id="gathered";pre.textContent=JSON.stringify(Array.from(frames,f=>f.found));
document.body.replaceChildren(pre)});</script>"""


def folder():
    """A folder that is gone after use. Below the build folder: what is measured is then a real file system."""
    for program in (ESKER, "chromium"):
        if not shutil.which(program):
            env.fail(f"{program} is missing; run 'make build', and 'make setup' with FOR_TESTS=1")
    os.makedirs(env.BUILD, exist_ok=True)
    # A process of Chromium's may still write into its profile.
    return tempfile.TemporaryDirectory(dir=env.BUILD, ignore_cleanup_errors=True)


def lab(folder, arguments):
    """A report, as text; noise is no fault here."""
    os.makedirs(os.path.join(folder, "lab-data"), exist_ok=True)
    runs = [] if "--runs" in arguments else ["--runs", "2"]
    p = subprocess.run([ESKER, "lab", *arguments, *runs, "--dir", "lab-data", "--json"], cwd=folder, capture_output=True, text=True)
    if p.returncode not in (0, 3):
        raise RuntimeError(f"esker lab {' '.join(arguments)} ended with {p.returncode}: {p.stderr}")
    return p.stdout


def page_of(folder, *names):
    """The page of one report or two."""
    return subprocess.run([ESKER, "lab", "report", *(n + ".json" for n in names)], cwd=folder, capture_output=True, text=True, check=True).stdout


def session_page(folder, text):
    """The page of a session's trace."""
    with open(os.path.join(folder, "session.trc"), "w", encoding="utf-8") as f:
        f.write(text)
    page = os.path.join(folder, "session.html")
    subprocess.run([ESKER, "trace", "--html", page, "session.trc"], cwd=folder, capture_output=True, text=True, check=True)
    with open(page, encoding="utf-8") as f:
        return f.read()


def chromium(folder, *arguments):
    """Chromium with a profile of its own, which is gone afterwards."""
    profile = tempfile.mkdtemp(dir=folder)
    try:
        return subprocess.run(["chromium", *FLAGS, f"--user-data-dir={profile}", *arguments], cwd=folder, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=LONGEST_S)
    finally:
        shutil.rmtree(profile, ignore_errors=True)


def faults(folder, page, widths=(1100,)):
    """What is wrong with a page in frames so wide, told by width; and how many plots it has."""
    looked = page.replace("<head>", "<head>" + CATCH, 1).replace("</body>", LOOK + "</body>", 1)
    path = os.path.join(folder, "page.html")
    with open(path, "w", encoding="utf-8") as f:
        frames = (f'<iframe style="width:{w}px;height:800px;border:0" srcdoc="{html.escape(looked)}"></iframe>' for w in widths)
        f.write("<!doctype html><body>" + "".join(frames) + GATHER + "</body>")
    for tries_left in (2, 1, 0):  # whether it comes up at all is Chromium's affair
        try:
            p = chromium(folder, "--window-size=1400,800", "--dump-dom", "file://" + path)
        except subprocess.TimeoutExpired:
            if not tries_left:
                raise
            continue
        told = re.search(r'<pre id="gathered">(.*?)</pre>', p.stdout, re.S)
        if told:
            break
    else:
        return [f"the page was not loaded: {p.stderr[-500:]}"], 0
    by_width = json.loads(html.unescape(told.group(1)))
    wrong = [line for line in p.stderr.splitlines() if "CONSOLE" in line and "Uncaught" in line]
    for width, found in zip(widths, by_width, strict=True):
        assert found and found.get("inner") == width, "the frame was not looked at"
        wrong += [f"{width} pixels: {what}" for what in faults_found(found)]
    return wrong, len(by_width[0]["svgs"])


def faults_found(found):
    """What is wrong, of what a page's script told of it."""
    wrong = [f"error: {e}" for e in found["errors"]]
    for n, svg in enumerate(found["svgs"]):
        if svg["width"] < 100 or svg["height"] < 30 or not svg["visible"]:
            wrong.append(f"plot {n} is {svg['width']:.0f} x {svg['height']:.0f} pixels")
        if not svg["shapes"] or not svg["drawn"]:
            wrong.append(f"plot {n}: {svg['drawn']} of {svg['shapes']} shapes can be seen")
        wrong += [f"plot {n}: '{t}' leaves the picture" for t in svg["out"]]
        wrong += [f"plot {n}: '{t}' is too small to read" for t in svg["small"]]
    wrong += [f"'{words}'" for words in found["over"]]
    if found["wide"] > 0:
        wrong.append(f"the page is {found['wide']} pixels wider than its window")
    if not found["svgs"]:
        wrong.append("no plot")
    return wrong

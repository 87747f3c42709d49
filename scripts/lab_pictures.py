#!/usr/bin/env python3
"""lab_pictures.py: measures anew and takes the pictures of docs/LAB.md from the lab's pages, in headless Chromium.

    scripts/lab_pictures.py docs/pictures     writes docs/pictures/lab-*.png
"""
import os
import sys

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, os.path.join(SCRIPTS, "..", "tests", "server")]
import pages  # noqa: E402

PICTURES = [
    ("lab-buffer", ["buffer", "--records", "500000", "--from", "256", "--to", "16M"], 1010),
    ("lab-commit", ["commit", "--threads", "1,2,4,8,16,32", "--commits", "100"], 1010),
]


def pictures(folder, into):
    """The pictures of the documentation: the upper part of two pages."""
    for name, arguments, height in PICTURES:
        with open(os.path.join(folder, "this machine.json"), "w") as f:
            f.write(pages.lab(folder, arguments))
        with open(os.path.join(folder, "page.html"), "w", encoding="utf-8") as f:
            f.write(pages.page_of(folder, "this machine"))
        picture = os.path.join(os.path.abspath(into), name + ".png")
        pages.chromium(folder, f"--window-size=1100,{height}", f"--screenshot={picture}", "file://" + os.path.join(folder, "page.html"))
        print(f"{picture}: {os.path.getsize(picture)} bytes")


def main():
    arguments = sys.argv[1:]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip())
        sys.exit(0 if arguments in ([], ["-h"], ["--help"]) else 2)
    with pages.folder() as folder:
        pictures(folder, arguments[0])


if __name__ == "__main__":
    main()

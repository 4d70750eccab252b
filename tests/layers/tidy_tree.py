#!/usr/bin/env python3
"""House rules that a machine can check: file length, leftovers, skipped tests.

Usage: tidy_tree.py REPOSITORY
"""
import pathlib
import re
import sys

LONGEST_FILE = 600  # lines; one concern fits
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c", ".py"}
FORBIDDEN = [
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "finish it or write it into the documentation"),
    (re.compile(r"\bDISABLED_"), "a disabled test is a missing test"),
    (re.compile(r"#define\s+private\s+public"), "test through the interface"),
]


def complaints(root):
    root = pathlib.Path(root)
    this = pathlib.Path(__file__).resolve()
    for top in ("src", "include", "plugins", "examples", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES or path.resolve() == this:
                continue
            text = path.read_text(errors="replace")
            lines = text.count("\n")
            if lines > LONGEST_FILE:
                yield f"{path.relative_to(root)}: {lines} lines; more than {LONGEST_FILE} is more than one concern"
            for pattern, advice in FORBIDDEN:
                for match in pattern.finditer(text):
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root)}:{line}: {match.group(0)}: {advice}"


if __name__ == "__main__":
    found = list(complaints(sys.argv[1]))
    print("\n".join(found) or "tidy")
    sys.exit(1 if found else 0)

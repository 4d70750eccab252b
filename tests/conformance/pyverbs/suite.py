#!/usr/bin/env python3
"""Runs rdma-core's pyverbs suite (Debian ships it with its documentation) on the card, under `beeline run`.

Usage: suite.py [--table] [names as for unittest: tests.test_cq …]
  --table   prints the skips as the table in ../pyverbs.md"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
BEELINE = Path(os.environ.get("BEELINE_BUILD", ROOT / "build")) / "bin/beeline"
INSTALLED = Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # pyverbs is built for Debian's
SUITE_S = 1500
HEAD = re.compile(r"^(test_\w+) \((tests\.[\w.]+)\)", re.MULTILINE)
# At the end of a line, behind the test's description or what the test itself printed.
VERDICT = re.compile(r"(?:^|\.\.\. )(?:(ok|FAIL|ERROR)|skipped (['\"])(.*)\2)$", re.MULTILINE)


def unpack(directory):
    for path in INSTALLED.iterdir():
        if path.suffix == ".gz":
            (directory / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, directory)


def parse(text):
    """name -> (verdict, reason): ok, skipped, FAIL or ERROR"""
    results = {}
    told = text.split("\n=====", 1)[0]
    heads = list(HEAD.finditer(told))
    for head, following in zip(heads, heads[1:] + [None]):
        name = head.group(2)
        if not name.endswith("." + head.group(1)):
            name += "." + head.group(1)
        verdicts = VERDICT.findall(told, head.end(), following.start() if following else len(told))
        kind, _, reason = verdicts[-1] if verdicts else ("unknown", "", "")
        results[name.removeprefix("tests.")] = (kind or "skipped", reason)
    return results


def run(names=(), device="bee0"):
    """The results, and all that was printed."""
    with tempfile.TemporaryDirectory() as directory:
        tests = Path(directory, "tests")
        tests.mkdir()
        unpack(tests)
        done = subprocess.run([BEELINE, "run", "--", PYTHON, "-B", "tests/run_tests.py", "--dev", device, "--port", "1",
                               "--gid", "0", "-v", *names], cwd=directory, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SUITE_S)
    return parse(done.stdout), done.stdout


if __name__ == "__main__":
    arguments = sys.argv[1:]
    as_table = "--table" in arguments
    found, printed = run([word for word in arguments if word != "--table"])
    if as_table:
        for test, (kind, why) in sorted(found.items()):
            if kind == "skipped":
                print(f"| `{test}` | {why} |")
    else:
        print(printed)
        print({kind: sum(1 for one, _ in found.values() if one == kind) for kind in ("ok", "skipped", "FAIL", "ERROR")})

"""Lets the tests import the harness, and gives them samples of what programs print."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCH = HERE.parent
sys.path.insert(0, str(BENCH))


def sample(name):
    return (HERE / "samples" / name).read_text()

#!/usr/bin/env python3
"""lab/icrc_check.py, under the name by which the tests know it."""
import pathlib
import runpy

runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "lab/icrc_check.py"), run_name="__main__")

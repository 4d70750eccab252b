"""bench/compare as a program: its options, its messages, and the way from a JSON file to tables."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from place import BENCH

DOCUMENT = {
    "version": 1,
    "environment": {"processor": "a processor", "cores": 2, "memory_GiB": 4, "kernel": "6", "load_at_start": 0.0,
                    "commit": "abc"},
    "options": {"rounds": 2},
    "cases": [{"section": "torch", "name": "2 ranks, 4 B", "unit": "us", "less_is_better": True,
               "samples": {"Beeline": [1.0, 2.0], "gloo": [5.0, 6.0]}}],
    "failures": ["iperf3: is missing"],
}


def compare(*words):
    return subprocess.run([sys.executable, "-B", BENCH / "compare", *map(str, words)], capture_output=True, text=True, timeout=300,
                          check=False)


class Options(unittest.TestCase):
    def refused(self, status, said, *words):
        done = compare(*words)
        self.assertEqual(done.returncode, status, done)
        self.assertIn(said, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_help_has_examples_and_sections(self):
        done = compare("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("examples:", "bench/compare --quick", "--rounds", "--json", "host", "torch", "wire", "loss", "cpu", "idle"):
            self.assertIn(word, done.stdout)

    def test_bad_options(self):
        self.refused(2, "there is no section 'hots'", "--only", "host,hots")
        self.refused(2, "there is no section", "--only", "")
        self.refused(2, "is not a whole number above 0", "--rounds", "0")
        self.refused(2, "is not a whole number above 0", "--window", "many")

    def test_no_build(self):
        self.refused(1, "scripts/build makes it", "--build", "/nonexistent", "--only", "host")

    def test_a_result_that_could_not_be_written_is_refused_first(self):
        self.refused(1, "cannot be written: No such file", "--json", "/nonexistent/result.json")

    def test_what_is_shown_must_be_a_result(self):
        self.refused(1, "cannot be read: No such file", "--show", "/nonexistent.json")
        for text in ("", "[]", "{}", "{\"version\": 2}"):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(text)
                file.flush()
                self.refused(1, file.name, "--show", file.name)


class Shown(unittest.TestCase):
    def test_tables_come_from_the_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "result.json"
            path.write_text(json.dumps(DOCUMENT))
            done = compare("--show", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\| 2 ranks, 4 B +\| us +\| 1\.50 \[1\.00-2\.00\] +\| 5\.50 \[5\.00-6\.00\] +\| 4\.00x")
        self.assertIn("Goals: 1 of 1 reached", done.stdout)
        self.assertIn("- iperf3: is missing", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)

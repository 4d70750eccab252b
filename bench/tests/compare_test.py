"""bench/compare as a program: its options, its messages, and the way from a JSON file to tables."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from place import BENCH

from harness import pages, report

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

    def test_pages_get_what_they_have_markers_for(self):
        with tempfile.TemporaryDirectory() as directory:
            result, page, other = (Path(directory) / name for name in ("result.json", "page.md", "other.md"))
            result.write_text(json.dumps(DOCUMENT))
            page.write_text("before\n<!-- begin: bench/compare summary -->\nold\n<!-- end: bench/compare summary -->\nafter\n")
            other.write_text("no markers\n")
            done = compare("--show", result, "--into", page)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = page.read_text().splitlines()
            self.assertEqual((lines[0], lines[1], lines[-2], lines[-1]),
                             ("before", "<!-- begin: bench/compare summary -->", "<!-- end: bench/compare summary -->", "after"))
            self.assertTrue(any("one host, PyTorch: 2 ranks, 4 B" in line and "4.00x" in line for line in lines))
            self.assertNotIn("old", lines)
            again = page.read_text()
            compare("--show", result, "--into", page)
            self.assertEqual(page.read_text(), again)
            done = compare("--show", result, "--into", other)
            self.assertEqual(done.returncode, 1)
            self.assertIn("other.md: it has no marker", done.stderr)
            self.assertEqual(other.read_text(), "no markers\n")

    def test_a_marker_without_an_end_is_an_error(self):
        with self.assertRaisesRegex(pages.Failure, "no '<!-- end: x -->' behind it"):
            pages.filled("<!-- end: x -->\n<!-- begin: x -->\n", {"x": "text"})

    def test_numbers_that_are_less_than_they_seem_say_so(self):
        remarks = report.remarks({"quick": True, "pin": True, "stock_buffers": True}, {"load_at_start": 3.0, "rmem_max": "212992"})
        for word in ("quick run", "busy", "pinned", "212992"):
            self.assertIn(word, remarks)
        self.assertEqual(report.remarks({}, {"load_at_start": 0.1}), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)

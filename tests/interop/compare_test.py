#!/usr/bin/env python3
"""lab/compare-rxe: both cards measured by the same program in one guest, every byte checked. No figure is judged."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT))
from lab import reason_against  # noqa: E402
from lab.compare.measure import CARDS, TESTS, Run, summary  # noqa: E402
from lab.compare.table import render, splits  # noqa: E402

NOT_RUN = 77  # ctest counts this as not run
MESSAGES = 6


def compare(*options):
    return subprocess.run([sys.executable, "-B", ROOT / "lab/compare-rxe", *options], capture_output=True, text=True,
                          check=False, timeout=400)


def run_of(messages, instructions, packets=0, dropped=0):
    return Run(messages, instructions, user=60, system=40, idle=0, switches=messages, packets=packets, dropped=dropped)


def row(card, pairs):
    return {"card": card, "title": "64 KiB WRITE", "bytes": 65536, "mtu_bytes": 4096, **summary(TESTS[0], pairs)}


class Arithmetic(unittest.TestCase):
    def test_what_happens_once_cancels(self):
        found = summary(TESTS[0], [(run_of(10, 5000 + 10 * 65536, packets=30), run_of(30, 5000 + 30 * 65536, packets=90))])
        self.assertEqual(found["instructions_per_message"], {"median": 65536, "min": 65536, "max": 65536})
        self.assertEqual(found["instructions_per_byte"]["median"], 1)
        self.assertEqual(found["packets_per_message"], 3)
        self.assertEqual(found["switches_per_message"], 1)

    def test_the_table_says_what_is_not_proportional_and_what_was_lost(self):
        steady = [(run_of(10, 10 * 65536), run_of(30, 30 * 65536))]
        odd = [(run_of(10, 40 * 65536), run_of(30, 60 * 65536, packets=4000, dropped=4))]
        result = {"kernel": "6.1", "processors": 1, "runs": 1, "perftest": [],
                  "results": [row("rxe", steady), row("bee0", steady)]}
        text = "\n".join(render(result))
        self.assertIn("| 64 KiB WRITE | 4096 | byte | 1.00 | 1.00 | 1.00 |", text)
        self.assertNotIn("not proportional", text)
        result["results"][1] = row("bee0", odd)
        text = "\n".join(render(result))
        self.assertIn("bee0, 64 KiB WRITE, path MTU 4096: not proportional", text)
        self.assertIn("100.0 packets per message: some were sent again", text)
        self.assertIn("4 datagrams found no room", text)

    def test_two_packet_sizes_split_the_cost(self):
        def at(mtu, instructions):
            return {**row("bee0", [(run_of(10, 10 * instructions), run_of(30, 30 * instructions))]), "mtu_bytes": mtu}
        lines = [at(4096, 16 * 3000 + 2 * 65536), at(1024, 64 * 3000 + 2 * 65536)]
        self.assertEqual(list(splits({"results": lines})), ["bee0, 64 KiB WRITE: 3,000 per packet and 2.00 per byte"])
        self.assertEqual(list(splits({"results": lines[:1]})), [])


class Command(unittest.TestCase):
    def test_help_and_bad_input(self):
        said = compare("--help")
        self.assertEqual(said.returncode, 0)
        self.assertIn("examples:", said.stdout)
        for options, words in ((["--messages", "1"], "at least 2"), (["--mtu", "1500"], "1500"), (["--runs", "x"], "--runs")):
            said = compare(*options)
            self.assertEqual(said.returncode, 2, said.stderr)
            self.assertIn(words, said.stderr)


class BothCards(unittest.TestCase):
    def test_a_program_that_is_not_there(self):
        said = compare("--program", "/nowhere/beeline")
        self.assertEqual(said.returncode, 125)
        self.assertEqual(said.stderr, "lab/compare-rxe: the program /nowhere/beeline does not exist\n")

    def test_every_line_for_both_cards(self):
        with tempfile.TemporaryDirectory(prefix="beeline-compare-test.") as folder:
            file = pathlib.Path(folder, "result.json")
            said = compare("--program", BUILD / "bin/beeline", "--messages", str(MESSAGES), "--runs", "1",
                           "--mtu", "4096", "--json", file)
            self.assertEqual(said.returncode, 0, said.stderr)
            result = json.loads(file.read_text())
        for card in CARDS:
            self.assertEqual([line["title"] for line in result["results"] if line["card"] == card],
                             [test.title for test in TESTS])
        for line in result["results"]:
            with self.subTest(card=line["card"], test=line["title"]):
                small, large = line["messages"]
                self.assertEqual(large, 3 * small)
                there_and_back = 2 if line["test"] == "send_lat" else 1
                self.assertEqual(line["checked_bytes"], small * line["bytes"] * there_and_back)
                for run in line["runs"][0]:
                    self.assertGreater(run["instructions"], 0)
                    # It went over the cable, and not some shorter way.
                    self.assertGreaterEqual(run["packets"], run["messages"])
        self.assertEqual([line["mtu_bytes"] for line in result["perftest"]], [4096])
        for test in TESTS:
            self.assertEqual(said.stdout.count(f"| {test.title} | 4096 |"), 1, said.stdout)


if __name__ == "__main__":
    if why := reason_against():
        print(f"compare_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)

"""rdma-core's pyverbs suite passes on the card, and skips exactly what ../pyverbs.md says, for the reason it says."""

import re
import unittest
from pathlib import Path

import suite

DOCUMENT = Path(__file__).resolve().parent.parent / "pyverbs.md"
LEAST_PASSED = 93


def documented():
    return {m.group(1): m.group(2).strip() for m in
            re.finditer(r"^\| `(test_[\w.]+)` \| (.*?) \|$", DOCUMENT.read_text(), re.MULTILINE)}


class Suite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results, cls.printed = suite.run()

    def of_kind(self, *kinds):
        return {name: why for name, (kind, why) in self.results.items() if kind in kinds}

    def test_none_fails(self):
        self.assertEqual(self.of_kind("FAIL", "ERROR"), {}, self.printed[-20000:])

    def test_enough_pass(self):
        self.assertGreaterEqual(len(self.of_kind("ok")), LEAST_PASSED, self.printed[-20000:])

    def test_every_verdict_is_understood(self):
        ran = re.search(r"^Ran (\d+) tests", self.printed, re.MULTILINE)
        self.assertIsNotNone(ran, self.printed[-20000:])
        self.assertEqual(len(self.results), int(ran.group(1)))
        self.assertEqual(set(kind for kind, _ in self.results.values()) - {"ok", "skipped", "FAIL", "ERROR"}, set())

    def test_skips_are_those_documented(self):
        self.assertEqual(self.of_kind("skipped"), documented())


if __name__ == "__main__":
    unittest.main(verbosity=2)

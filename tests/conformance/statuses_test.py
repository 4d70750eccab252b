"""docs/verbs.md says of every completion status and of every asynchronous event where the card reports it, or why it
never does. Held here against the enumerations of the installed header, and against the tests that it names."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def enumerators(name):
    source = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-"], input="#include <infiniband/verbs.h>\n",
                            capture_output=True, text=True, check=True).stdout
    body = re.search(rf"enum {name}\s*{{([^}}]*)}}", source).group(1)
    return re.findall(r"\b(IBV_\w+)", body)


def rows(prefix):
    """(name, where, tests) of the lines that begin with an enumerator."""
    text = (ROOT / "docs/verbs.md").read_text()
    return [tuple(cell.strip() for cell in match) for match in
            re.findall(rf"^\| `({prefix}_\w+)` \|([^|]*)\|([^|]*)\|$", text, re.M)]


def tests():
    """Suite.Name of every unit test, and Suite.* of every suite."""
    found = set()
    for path in (ROOT / "src").rglob("*_test.cc"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M):
            found |= {f"{suite}.{name}", f"{suite}.*"}
    return found


class Tables(unittest.TestCase):
    def check(self, enumeration, prefix):
        table = rows(prefix)
        names = enumerators(enumeration)
        self.assertGreater(len(names), 15)
        self.assertEqual([row[0] for row in table], names, "one row each, in the header's order")
        known = tests()
        for name, where, named in table:
            cited = re.findall(r"`([^`]+)`", named)
            if where.startswith("never: "):
                self.assertEqual(cited, [], name)
            else:
                self.assertTrue(cited, f"{name}: which test shows it?")
                self.assertLessEqual(set(cited), known, name)

    def test_every_completion_status(self):
        self.check("ibv_wc_status", "IBV_WC")

    def test_every_event(self):
        self.check("ibv_event_type", "IBV_EVENT")

    def test_a_status_with_a_test_is_asserted_by_name(self):
        """At the level of the verbs, or, where no honest peer causes it, of the protocol."""
        sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*_test.cc"))
        beneath = {"IBV_WC_BAD_RESP_ERR": "WcStatus::bad_response"}
        for name, where, _ in rows("IBV_WC") + rows("IBV_EVENT"):
            if not where.startswith("never: "):
                self.assertIn(beneath.get(name, name), sources)


if __name__ == "__main__":
    unittest.main(verbosity=2)

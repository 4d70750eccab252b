"""Faults of one rank reach the others as Python exceptions that name it."""

import re
import unittest

from ranks import run_ranks, transcript

# The time in which a peer that is gone is named.
NAMED_WITHIN_S = 5.0


def said(outcome, what):
    """(time, message) of the line that starts with `what`."""
    for line in outcome.output.splitlines():
        if line.startswith(what + " @ "):
            _, at, message = line.split(" @ ", 2)
            return float(at), message
    raise AssertionError(f"rank {outcome.rank} did not say '{what}':\n{outcome.output}")


class Faults(unittest.TestCase):
    def assert_names(self, message, *ranks):
        for rank in ranks:
            self.assertRegex(message, rf"\brank {rank}\b")

    def test_mismatched_calls(self):
        outcomes = run_ranks(2, "faults_rank.py", "mismatches")
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, transcript(outcomes))
            for kind in ("count", "dtype", "reduction", "root", "operation"):
                with self.subTest(kind=kind, rank=outcome.rank):
                    for when in ("first", "later"):
                        _, message = said(outcome, f"{when} {kind}")
                        self.assert_names(message, 0, 1)

    def check_death(self, scenario, status_of_the_dead):
        outcomes = run_ranks(3, "faults_rank.py", scenario)
        self.assertEqual(outcomes[2].status, status_of_the_dead, transcript(outcomes))
        died_at, _ = said(outcomes[2], "dies")
        for survivor in outcomes[:2]:
            self.assertEqual(survivor.status, 0, transcript(outcomes))
            named_at, message = said(survivor, "survives")
            self.assert_names(message, 2)
            self.assertLess(named_at - died_at, NAMED_WITHIN_S, transcript(outcomes))

    def test_killed_rank(self):
        self.check_death("killed", -9)

    def test_killed_rank_with_many_works_under_way(self):
        self.check_death("killed_amid_async", -9)

    def test_rank_that_ends_with_an_exception(self):
        self.check_death("raises", 1)

    def test_abort(self):
        outcomes = run_ranks(2, "faults_rank.py", "aborts")
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, transcript(outcomes))
            _, message = said(outcome, "survives")
            self.assert_names(message, 0)
            self.assertTrue(re.search("abort", message), message)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Every operation of the PyTorch backend, with two and three ranks."""

import unittest

from ranks import run_ranks, transcript


class Collectives(unittest.TestCase):
    def check(self, size):
        outcomes = run_ranks(size, "collectives_rank.py")
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, transcript(outcomes))
            self.assertIn("all done", outcome.output)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""DistributedDataParallel over beeline gives, with two ranks, the bits that it gives over gloo."""

import functools
import unittest

from ranks import run_ranks, transcript


@functools.cache
def bits(backend, *options, debug="OFF"):
    """What each rank says of its losses and parameters."""
    outcomes = run_ranks(2, "ddp_rank.py", backend, *options, env={"TORCH_DISTRIBUTED_DEBUG": debug})
    if any(outcome.status != 0 for outcome in outcomes):
        raise AssertionError(transcript(outcomes))
    return [[line for line in outcome.output.splitlines() if line.startswith("bits ")] for outcome in outcomes]


class DistributedDataParallel(unittest.TestCase):
    def check(self, *options, debug="OFF"):
        ours, gloos = bits("beeline", *options, debug=debug), bits("gloo", *options)
        self.assertGreater(len(ours[0]), 12)
        self.assertEqual(ours, gloos)

    def test_every_parameter_used(self):
        self.check()

    def test_unused_parameters_and_views(self):
        self.check("--unused", "--views")

    def test_with_pytorchs_own_checks(self):
        """DETAIL puts PyTorch's checking group between DDP and the backend."""
        self.check(debug="DETAIL")


if __name__ == "__main__":
    unittest.main(verbosity=2)

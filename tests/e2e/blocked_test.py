"""With UDP 4791 blocked a training fails, in bounded time, and names the peer it cannot reach."""

import threading
import unittest

import namespace
from ranks import ROOT, run_ranks, transcript

TRAIN = ROOT / "examples/train/train.py"
LIMIT_S = 120


class Blocked(unittest.TestCase):
    def setUp(self):
        self.addCleanup(namespace.drop_nothing)

    def check(self, outcomes):
        for outcome in outcomes:
            self.assertNotEqual(outcome.status, 0, transcript(outcomes))
            self.assertNotIn("[2 of 2 ranks killed", outcome.output, transcript(outcomes))
            self.assertGreater(outcome.status, 0, f"ended by a signal\n{transcript(outcomes)}")
            errors = [line for line in outcome.output.splitlines() if "DistBackendError" in line]
            self.assertTrue(errors, transcript(outcomes))
            self.assertRegex(errors[-1], rf"\brank {1 - outcome.rank}\b", transcript(outcomes))
            print(f"rank {outcome.rank} after {outcome.seconds:.1f} s: {errors[-1][:300]}")

    def test_blocked_from_the_start(self):
        namespace.drop_roce()
        self.check(run_ranks(2, TRAIN, "--steps", 5, limit_s=LIMIT_S, env={"BEELINE_LANE": "wire"}))

    def test_blocked_in_mid_run(self):
        block_once = threading.Event()

        def on_line(rank, line):
            if rank == 0 and line.startswith("step ") and not block_once.is_set():
                block_once.set()
                namespace.drop_roce()

        outcomes = run_ranks(
            2, TRAIN, "--steps", 100_000, "--every", 3, limit_s=LIMIT_S, env={"BEELINE_LANE": "wire"}, on_line=on_line
        )
        self.assertTrue(block_once.is_set(), transcript(outcomes))
        self.check(outcomes)


if __name__ == "__main__":
    namespace.enter("nft")
    unittest.main(verbosity=2)

"""Packets of a training are lost, and its losses and parameters still have the bits that gloo gives."""

import unittest

import namespace
from ranks import run_ranks, transcript

STEPS = 40


def bits(backend):
    outcomes = run_ranks(2, "ddp_rank.py", backend, "--steps", STEPS, env={"BEELINE_LANE": "wire"})
    if any(outcome.status != 0 for outcome in outcomes):
        raise AssertionError(transcript(outcomes))
    print(f"{backend}: {max(outcome.seconds for outcome in outcomes):.1f} s", flush=True)
    return [[line for line in outcome.output.splitlines() if line.startswith("bits ")] for outcome in outcomes]


class Lossy(unittest.TestCase):
    def test_one_packet_in_a_hundred(self):
        self.addCleanup(namespace.drop_nothing)
        namespace.lose_roce(per_mille=10)
        ours = bits("beeline")
        lost = namespace.lost_packets()
        namespace.drop_nothing()
        print(f"{lost} packets were lost", flush=True)
        self.assertGreater(lost, 0, "nothing was lost: this run shows nothing")
        self.assertGreater(len(ours[0]), STEPS)
        self.assertEqual(ours, bits("gloo"))


if __name__ == "__main__":
    namespace.enter("nft")
    unittest.main(verbosity=2)

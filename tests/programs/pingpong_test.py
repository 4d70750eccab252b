"""ibv_{rc,uc,ud,srq}_pingpong, with and without events, on one host and between two network namespaces."""

import re
import unittest

from place import pair, places

ITERATIONS = 200


class Pingpong(unittest.TestCase):
    def play(self, tool, *options):
        for place in places():
            for output in pair(self, place, [tool, "-d", place.device, "-g", 0, "-n", ITERATIONS, *options]):
                self.assertRegex(output, rf"\n{ITERATIONS} iters in [\d.]+ seconds", place.name)
                self.assertRegex(output, r"remote address: LID 0x0000, QPN 0x[0-9a-f]{6}")

    def test_rc(self):
        self.play("ibv_rc_pingpong")

    def test_rc_with_events(self):
        self.play("ibv_rc_pingpong", "-e")

    def test_rc_messages_of_many_packets_are_checked_whole(self):
        self.play("ibv_rc_pingpong", "-s", 100000, "-c")

    def test_rc_with_the_new_way_to_post(self):
        self.play("ibv_rc_pingpong", "-N")

    def test_uc(self):
        self.play("ibv_uc_pingpong")

    def test_uc_with_events(self):
        self.play("ibv_uc_pingpong", "-e")

    def test_ud(self):
        self.play("ibv_ud_pingpong", "-s", 1024)

    def test_ud_with_events(self):
        self.play("ibv_ud_pingpong", "-s", 1024, "-e")

    def test_srq(self):
        self.play("ibv_srq_pingpong", "-q", 4)

    def test_srq_with_events(self):
        self.play("ibv_srq_pingpong", "-q", 4, "-e")


if __name__ == "__main__":
    unittest.main(verbosity=2)

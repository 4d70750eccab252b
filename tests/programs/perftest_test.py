"""Every perftest tool, on one host and between two network namespaces, as a user types it.

perftest checks no data; tests/interop and the card's own tests do."""

import re
import unittest

from place import pair, places

BANDWIDTH = [f"ib_{kind}_bw" for kind in ("write", "read", "send")]
LATENCY = [f"ib_{kind}_lat" for kind in ("write", "read", "send")]
SIZES_OF_ALL = 23  # 2 bytes to 8 MiB, in powers of two


def rows(output):
    """The result table: size, iterations, and numbers."""
    return [(int(m.group(1)), int(m.group(2)), [float(x) for x in m.group(3).split()])
            for m in re.finditer(r"^ (\d+) +(\d+) +((?:[\d.]+[ \t]*)+)$", output, re.MULTILINE)]


class Perftest(unittest.TestCase):
    def play(self, tool, *options, at=None):
        """The client's result rows, and all that it said, at the last place."""
        for place in at or places():
            _, output = pair(self, place, [tool, "-d", place.device, "-F", *options])
            found = rows(output)
            self.assertTrue(found, f"{tool} {options} {place.name}: no results\n{output}")
            for size, iterations, values in found:
                self.assertTrue(size > 0 and iterations > 0 and max(values) > 0, f"{tool} {options}: {output}")
        return found, output

    def each(self, tools, *options):
        for tool in tools:
            with self.subTest(tool=tool, options=options):
                self.play(tool, *options)

    def test_latency(self):
        self.each(LATENCY, "-n", 100)

    def test_atomics(self):
        self.each(["ib_atomic_bw", "ib_atomic_lat"], "-n", 100)
        self.each(["ib_atomic_bw", "ib_atomic_lat"], "-n", 100, "-A", "CMP_AND_SWAP")

    def test_all_sizes(self):
        """Mostly the processor's time: with every size perftest measures its clock anew, up to half a second each
        time, on both sides."""
        for tool in BANDWIDTH + LATENCY:
            for place in places():
                with self.subTest(tool=tool, place=place.name):
                    self.assertEqual(len(self.play(tool, "-a", "-n", 5, at=[place])[0]), SIZES_OF_ALL)

    def test_both_directions(self):
        self.each(["ib_write_bw", "ib_read_bw", "ib_send_bw"], "-b", "-n", 100)

    def test_a_duration(self):
        self.each(["ib_write_bw", "ib_send_bw", "ib_send_lat"], "-D", 1)

    def test_eight_queue_pairs(self):
        self.each(BANDWIDTH, "-q", 8, "-n", 50)

    def test_events(self):
        # perftest itself refuses -e with WRITE: nothing completes at the receiver.
        self.each(["ib_send_bw", "ib_send_lat", "ib_read_bw"], "-e", "-n", 50)

    def test_gigabits(self):
        self.assertIn("BW average[Gb/sec]", self.play("ib_write_bw", "-n", 50, "--report_gbits")[1])

    def test_uc(self):
        self.each(["ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat"], "-c", "UC", "-n", 50)

    def test_ud(self):
        self.each(["ib_send_bw", "ib_send_lat"], "-c", "UD", "-s", 512, "-n", 50)

    def test_shared_receive_queue(self):
        self.each(["ib_send_bw", "ib_send_lat"], "--use-srq", "-n", 50)


if __name__ == "__main__":
    unittest.main(verbosity=2)

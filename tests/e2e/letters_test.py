"""Small calls on one host travel as stores into the other rank's memory; over the wire none does. The cards count it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from ranks import BUILD, free_port

PROGRAMS = BUILD / "bin"
RANKS, CALLS, BYTES = 2, 2000, 64


class Letters(unittest.TestCase):
    def lanes(self, lane, size):
        """What all ranks' cards moved, by lane and counter, in CALLS calls of this size."""
        with tempfile.TemporaryDirectory(prefix="beeline-letters.") as folder:
            file = pathlib.Path(folder, "counters.json")
            done = subprocess.run(
                [PROGRAMS / "beeline", "bench", "all_reduce", "--ranks", str(RANKS), "-d", "float", "-b", str(size),
                 "-e", str(size), "-n", str(CALLS), "-w", "5", "-c", "1"],
                env={**os.environ, "BEELINE_PROVIDER": "soft", "BEELINE_LANE": lane, "BEELINE_COUNTERS": str(file)},
                capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            lines = [json.loads(line)["lanes"] for line in file.read_text().splitlines()]
        self.assertEqual(len(lines), RANKS, lines)
        return {name: {counter: sum(line[name][counter] for line in lines) for counter in lines[0][name]}
                for name in ("wire", "local")}

    def test_small_calls_are_stored_in_the_peers_memory(self):
        local = self.lanes("local", BYTES)["local"]
        # How many depends on the machine: ranks that have to sleep are sent messages, which wake them.
        self.assertGreater(local["payload_bytes_stored"], 0, local)
        # Each byte that was sent was stored, or its receiver has counted it.
        self.assertEqual(local["payload_bytes_sent"], local["payload_bytes_stored"] + local["payload_bytes_received"])

    def test_large_calls_are_not(self):
        local = self.lanes("local", 64 * 1024)["local"]
        self.assertGreaterEqual(local["payload_bytes_received"], RANKS * CALLS * 64 * 1024)
        self.assertLess(local["payload_bytes_stored"], local["payload_bytes_sent"] / 10, local)

    def test_none_is_over_the_wire(self):
        lanes = self.lanes("wire", BYTES)
        self.assertEqual(set(lanes["local"].values()), {0}, lanes)
        self.assertGreaterEqual(lanes["wire"]["payload_bytes_received"], RANKS * CALLS * BYTES, lanes)

    def test_ranks_that_fall_asleep_miss_nothing(self):
        """Whether a letter comes before, behind or in the middle of falling asleep: every call ends, and is right."""
        for ranks, calls in ((2, 4000), (4, 600)):
            with self.subTest(ranks=ranks):
                meeting = f"127.0.0.1:{free_port()}"
                env = {**os.environ, "BEELINE_PROVIDER": "soft", "BEELINE_LANE": "local", "BEELINE_TIMEOUT": "60"}
                group = [subprocess.Popen([PROGRAMS / "e2e_drowsy", str(rank), str(ranks), meeting, str(calls), "7"], env=env,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                         for rank in range(ranks)]
                said = [rank.communicate(timeout=300)[0] for rank in group]
                self.assertEqual([rank.returncode for rank in group], [0] * ranks, said)
                self.assertEqual(said, [f"{calls} calls\n"] * ranks)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The gradients of a training really cross as RoCE v2 packets.

What is on UDP 4791 meanwhile is captured and judged by tests/golden/icrc_check.py, which
shares no code with Beeline: at least as many payload bytes as there are gradient bytes,
and every packet's ICRC right.
"""

import json
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import namespace
from ranks import ROOT, run_ranks, transcript

STEPS = 5
TRAIN = ROOT / "examples/train/train.py"
ICRC_CHECK = ROOT / "tests/golden/icrc_check.py"

# All of UDP 4791 but the probes by which the processes of this host that share the port
# learn the order of their sockets: 16 bytes from port to port that are no RoCE packets
# (src/port/udp/steering.h) and never leave the host.
PROBES_V4 = "udp src port 4791 and udp[4:2] = 24 and udp[8] = 0xff and udp[10:2] = 0xbee1"
PROBES_V6 = "ip6[6] = 17 and ip6[40:2] = 4791 and ip6[44:2] = 24 and ip6[48] = 0xff and ip6[50:2] = 0xbee1"
FILTER = f"udp port 4791 and not ({PROBES_V4}) and not ({PROBES_V6})"


class Capture:
    """tcpdump on the loopback interface, whole packets, with room for all of them."""

    def __init__(self, file):
        command = ["tcpdump", "-i", "lo", "-Z", "root", "-s", "0", "-B", "262144", "-w", str(file), FILTER]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        heard = self.process.stderr.readline()
        while heard and "listening on" not in heard:
            heard = self.process.stderr.readline()
        if not heard:
            raise RuntimeError(f"tcpdump ended with status {self.process.wait()}")

    def stop(self):
        """What tcpdump says about the packets it lost."""
        time.sleep(1)  # for what is still on its way through the kernel's buffer
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return said


class Travel(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="beeline-travel.")
        self.addCleanup(self.directory.cleanup)

    def captured_training(self, backend):
        """(results of the training, verdict of the checker, what tcpdump said)"""
        results, packets = Path(self.directory.name, "results.json"), Path(self.directory.name, "packets.pcap")
        capture = Capture(packets)
        try:
            outcomes = run_ranks(
                2, TRAIN, "--backend", backend, "--steps", STEPS, "--json", results, env={"BEELINE_LANE": "wire"}
            )
        finally:
            said = capture.stop()
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, transcript(outcomes))
        judged = subprocess.run([sys.executable, str(ICRC_CHECK), str(packets)], capture_output=True, text=True)
        return json.loads(results.read_text()), json.loads(judged.stdout), said

    def test_gradients_cross_as_roce_packets(self):
        results, verdict, said = self.captured_training("beeline")
        print(json.dumps({key: verdict[key] for key in ("packets", "good", "bad", "truncated", "payload_bytes")}))
        gradient_bytes = results["gradient_bytes_per_step"] * STEPS
        self.assertGreaterEqual(verdict["payload_bytes"], gradient_bytes, said)
        self.assertEqual(verdict["good"], verdict["packets"], verdict["errors"])
        self.assertEqual((verdict["bad"], verdict["truncated"]), (0, 0), verdict["errors"])

    def test_gloo_sends_none(self):
        """The counterpart: what is counted above does not come from somewhere else."""
        _, verdict, _ = self.captured_training("gloo")
        self.assertEqual(verdict["packets"], 0)


if __name__ == "__main__":
    namespace.enter("tcpdump")
    unittest.main(verbosity=2)

"""The programs that measure: what they say of a short run, and what they refuse. Numbers are not judged."""

import json
import os
import socket
import unittest
from pathlib import Path

import place  # noqa: F401
from harness import parse
from harness.stage import Failure, Stage, free_port

PROGRAMS = Path(os.environ["BEELINE_BUILD"]) / "bench"
LONG = 120


class OnLoopback(unittest.TestCase):
    def setUp(self):
        self.stage = Stage()
        self.stage.__enter__()
        self.addCleanup(self.stage.__exit__, None, None, None)

    def raw(self, serve, ask, *options):
        port = free_port(socket.SOCK_DGRAM)
        words = [PROGRAMS / "raw_udp"]
        server = self.stage.start([*words, serve, "127.0.0.1", "--port", port], deadline=LONG)
        server.wait_for_socket("udp", port, patience=60)
        client = self.stage.run([*words, ask, "127.0.0.1", "--port", port, *options], deadline=LONG)
        return client.output, server.wait().require().output

    def test_a_stream_arrives(self):
        for message, mtu in ((65536, 4096), (1 << 20, 1024), (100, 4096), (5000, 1024)):
            with self.subTest(message=message, mtu=mtu):
                sent, received = self.raw("receive", "send", "--message", message, "--mtu", mtu, "--seconds", 0.1)
                rate, arrived = parse.raw_stream(sent, received)
                self.assertGreater(rate, 0)
                self.assertGreater(arrived, 0)
                self.assertLessEqual(arrived, 1)
                self.assertEqual(json.loads(sent)["sent_bytes"] % message, 0)

    def test_a_ping_comes_back(self):
        answer, _ = self.raw("echo", "ping", "--iterations", 100)
        self.assertGreater(parse.raw_latency(answer), 0)

    def test_raw_udp_refuses_nonsense(self):
        for words, said in ((["hum", "127.0.0.1"], "there is no 'hum'"), (["ping", "localhost"], "not an IPv4 address"),
                            (["ping", "127.0.0.1", "--port", "x"], "not a number"), ([], "and an address")):
            with self.subTest(words=words), self.assertRaisesRegex(Failure, said):
                self.stage.run([PROGRAMS / "raw_udp", *words], deadline=LONG)

    def ranks(self, *options):
        rendezvous = f"127.0.0.1:{free_port()}"
        words = [PROGRAMS / "beeline_all_reduce", "--size", 2, "--rendezvous", rendezvous, *options]
        return self.stage.run_together([([*words, "--rank", rank], None) for rank in range(2)], LONG)

    def test_all_reduce_says_a_line_per_size(self):
        first, second = self.ranks("--sizes", "8,4096,100000", "--batch-seconds", "0.001", "--batches", 2)
        self.assertEqual(list(parse.all_reduce(first.output, "beeline_all_reduce")), [8, 4096, 100000])
        self.assertEqual(second.output, "")

    def test_idleness_is_said_by_every_rank(self):
        for outcome in self.ranks("--idle", "0.1"):
            self.assertGreaterEqual(parse.idleness(outcome.output), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

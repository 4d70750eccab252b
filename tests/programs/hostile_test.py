"""Servers of connections while somebody floods them over the wire (cm_flood.py), in a network namespace of the
test's own."""

import shutil
import sys
import unittest
from pathlib import Path

from place import TCP, Namespace, await_service, free_port, run

FLOOD = Path(__file__).with_name("cm_flood.py")
ADDRESS = "127.0.0.1"
MESSAGES = 2000


class Flood(unittest.TestCase):
    def setUp(self):
        for tool in ("rping", "rdma_server", "unshare", "nsenter", "ip"):
            self.assertIsNotNone(shutil.which(tool), f"{tool}: scripts/setup --for-tests installs it")
        self.space = Namespace()
        self.addCleanup(self.space.close)
        self.port = free_port()

    def serve(self, *words):
        server = self.space.program(*words)
        self.addCleanup(server.kill)
        await_service(server, TCP, self.port)
        return server

    def flood(self, what, seed=1):
        done = run(*self.space.prefix, sys.executable, "-B", FLOOD, ADDRESS, self.port, MESSAGES, what, seed)
        self.assertEqual(done.returncode, 0, done.stderr)

    def ping(self, server):
        client = self.space.program("rping", "-c", "-a", ADDRESS, "-p", self.port, "-C", 3)
        told = f"client:\n{client.output()}\nserver:\n{server.output()}"
        self.assertEqual(client.wait(), 0, told)

    def test_nonsense_reaches_no_server(self):
        if not self.space.made:
            return
        server = self.serve("rping", "-s", "-P", "-a", ADDRESS, "-p", self.port)
        for seed in (1, 2):
            self.flood("bogus", seed)
            self.ping(server)
        self.assertIsNone(server.process.poll(), server.output())
        self.assertNotIn("event", server.output(), "nothing came of it")

    def test_nonsense_does_not_end_a_server_of_one(self):
        if not self.space.made:
            return
        server = self.serve("rdma_server", "-p", self.port)
        self.flood("bogus")
        client = self.space.program("rdma_client", "-s", ADDRESS, "-p", self.port)
        self.assertEqual((client.wait(), server.wait()), (0, 0), client.output() + server.output())

    def test_requests_that_nobody_goes_on_with(self):
        """rping itself may give up: it ends when a connection is not established in time, and mixes up requests that
        come at once ("setup_qp failed"), all by its own code. It must not crash; and whoever serves next
        is not troubled by what is left of the flood."""
        if not self.space.made:
            return
        server = self.serve("rping", "-s", "-P", "-a", ADDRESS, "-p", self.port)
        self.flood("half_open")
        status = server.process.poll()
        self.assertTrue(status is None or status >= 0, f"{status}: {server.output()}")
        server.kill()
        self.ping(self.serve("rping", "-s", "-P", "-a", ADDRESS, "-p", self.port))


if __name__ == "__main__":
    unittest.main(verbosity=2)

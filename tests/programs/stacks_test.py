"""What stands on verbs: UCX, libfabric and Open MPI, unmodified, on the card."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from place import OneHost, Program, free_port, on_card, run

HERE = Path(__file__).resolve().parent


class Stacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = OneHost()

    def ucx(self, transport):
        return {**os.environ, "UCX_TLS": transport, "UCX_NET_DEVICES": f"{self.place.device}:1", "UCX_IB_GID_INDEX": "0"}

    def perftest(self, transport, kind, *options):
        port = free_port()
        words = ["ucx_perftest", "-t", kind, "-p", port, "-n", 200, "-w", 10, *options]
        server = Program(on_card(*words[:5]), self.ucx(transport))
        client = None
        try:
            server.await_listening(port)
            client = Program(on_card(*words, self.place.address), self.ucx(transport))
            told = lambda: f"{transport} {kind}\nclient:\n{client.output()}\nserver:\n{server.output()}"
            self.assertEqual(client.wait(), 0, told())
            self.assertEqual(server.wait(), 0, told())
            self.assertRegex(client.output(), r"Final:\s+200 ", told())
        finally:
            server.kill()
            if client is not None:
                client.kill()

    def test_ucx_shows_the_device(self):
        done = run(*on_card("ucx_info", "-d"))
        self.assertEqual(done.returncode, 0, done)
        for transport in ("rc_verbs", "ud_verbs"):
            self.assertRegex(done.stdout, rf"Transport: {transport}\n#\s+Device: {self.place.device}:1")

    def test_ucx_over_reliable_connections(self):
        for kind in ("tag_lat", "stream_lat", "ucp_put_lat", "ucp_get", "ucp_add", "ucp_fadd", "ucp_cswap"):
            with self.subTest(kind=kind):
                self.perftest("rc_verbs", kind)

    def test_ucx_over_datagrams(self):
        for kind in ("tag_lat", "stream_lat"):
            with self.subTest(kind=kind):
                self.perftest("ud_verbs", kind)

    def test_open_mpi_reduces(self):
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory, "allreduce")
            subprocess.run(["mpicc", HERE / "allreduce.c", "-o", program], check=True)
            ranks = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 2, "--mca", "pml", "ucx", "-x",
                     "UCX_TLS=rc_verbs", "-x", f"UCX_NET_DEVICES={self.place.device}:1", "-x", "UCX_IB_GID_INDEX=0"]
            done = run(*on_card(*ranks, program), timeout=300)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {rank} of 2: 0 wrong" for rank in range(2)])


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""What stands on verbs: UCX, libfabric and Open MPI, unmodified, on the card."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from place import OneHost, Program, free_port, on_card, places, run

HERE = Path(__file__).resolve().parent


# UCX's rc_verbs connects through another transport, "auxiliary", which the list of transports has to allow; a list
# of "rc_verbs" alone reaches nobody on any card. "rc_v" is UCX's own short name for these two.
RC = "rc_verbs,ud_verbs:aux"
UD = "ud_verbs"
# ucx_perftest's operations and the bytes of a message: one in a packet, one of many.
UCX_OPERATIONS = [(kind, size) for kind in ("tag_lat", "stream_lat", "ucp_put_lat", "ucp_get") for size in (8, 100000)]
UCX_OPERATIONS += [(kind, 8) for kind in ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")]


def domains(place):
    """What libfabric calls the device. It leaves loopback interfaces out for connections, for datagrams not."""
    datagrams = {"dgram": f"{place.device}-dgram"}
    return datagrams if place.interface == "lo" else {**datagrams, "msg": place.device}


def ucx_variables(place, transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": f"{place.device}:1", "UCX_IB_GID_INDEX": "0"}


class Pairs(unittest.TestCase):
    """Client and server, on one host and in two network namespaces."""

    def in_pair(self, place, server_words, client_words, port, env=None):
        """Both programs, to their ends, which must be good. Returns what they said."""
        server = Program(place.words(0, on_card(*server_words)), env)
        client = None
        try:
            server.await_listening(port)
            client = Program(place.words(1, on_card(*client_words, place.address)), env)
            statuses = client.wait(), server.wait()
        finally:
            server.kill()
            if client is not None:
                client.kill()
        told = f"{client_words} ({place.name})\nclient:\n{client.output()}\nserver:\n{server.output()}"
        self.assertEqual(statuses, (0, 0), told)
        return told

    def ucx_perftest(self, transports):
        for place in places():
            for kind, size in UCX_OPERATIONS:
                with self.subTest(place=place.name, kind=kind, size=size):
                    port = free_port()
                    server = ["ucx_perftest", "-p", port]
                    client = [*server, "-t", kind, "-s", size, "-n", 200, "-w", 10]
                    told = self.in_pair(place, server, client, port,
                                        {**os.environ, **ucx_variables(place, transports)})
                    self.assertRegex(told, r"Final:\s+200 ")

    def test_ucx_over_reliable_connections(self):
        self.ucx_perftest(RC)

    def test_ucx_over_datagrams(self):
        self.ucx_perftest(UD)

    def test_ucx_finds_the_card_by_itself(self):
        for place in places():
            with self.subTest(place=place.name):
                port = free_port()
                server = ["ucx_perftest", "-p", port]
                self.in_pair(place, server, [*server, "-t", "tag_lat", "-n", 200], port,
                             {**os.environ, "UCX_TLS": "ib"})

    def test_libfabric_pings(self):
        for place in places():
            for kind, domain in domains(place).items():
                with self.subTest(place=place.name, kind=kind):
                    port = free_port()
                    words = ["fi_pingpong", "-p", "verbs", "-e", kind, "-d", domain, "-c", "-I", 20]
                    told = self.in_pair(place, [*words, "-B", port], [*words, "-P", port], port)
                    self.assertRegex(told, r"(?m)^1k +20 +=20 ")


class OpenMpi(unittest.TestCase):
    """Two ranks reduce and check the result: on one host, and one in each of two namespaces."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="beeline-mpi.")))
        cls.program = cls.folder / "allreduce"
        subprocess.run(["mpicc", HERE / "allreduce.c", "-o", cls.program], check=True)

    def on_hosts(self, place):
        """What tells mpirun where to start ranks. It reaches the other namespace by a script instead of by ssh;
        a host name of its own makes that another host."""
        if isinstance(place, OneHost):
            return ["--oversubscribe"]
        agent = self.folder / "agent"
        inside = " ".join(place.words(1, ["unshare", "--uts", "sh", "-c", "'hostname other; exec sh -c \"$1\"'", "sh"]))
        agent.write_text(f'#!/bin/sh\nshift\ntouch {self.folder}/reached\nexec {inside} "$*"\n')
        agent.chmod(0o755)
        return ["--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", place.network,
                "--host", f"{place.address},{place.other_address}"]

    def all_reduce(self, place, transports):
        variables = [word for name, value in ucx_variables(place, transports).items()
                     for word in ("-x", f"{name}={value}")]
        ranks = ["mpirun", "--allow-run-as-root", *self.on_hosts(place), "-n", 2, "--mca", "pml", "ucx", *variables]
        done = run(*place.words(0, on_card(*ranks, self.program)), timeout=300)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        self.assertEqual(sorted(done.stdout.splitlines()), [f"rank {rank} of 2: 0 wrong" for rank in range(2)])

    def test_reduces(self):
        for place in places():
            for transports in (RC, UD):
                with self.subTest(place=place.name, transports=transports):
                    self.all_reduce(place, transports)
            self.assertEqual(Path(self.folder, "reached").exists(), not isinstance(place, OneHost))


class OnOneHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = OneHost()

    def test_ucx_shows_the_device(self):
        done = run(*on_card("ucx_info", "-d"))
        self.assertEqual(done.returncode, 0, done)
        for transport in ("rc_verbs", "ud_verbs"):
            self.assertRegex(done.stdout, rf"Transport: {transport}\n#\s+Device: {self.place.device}:1")

    def test_libfabric_sees_the_card(self):
        done = run(*on_card("fi_info", "-p", "verbs"))
        self.assertEqual(done.returncode, 0, done)
        for kind, domain in domains(self.place).items():
            self.assertRegex(done.stdout, rf"domain: {domain}\n.*\n +type: FI_EP_{kind.upper()}\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)

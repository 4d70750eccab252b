#!/usr/bin/env python3
"""Stock programs under `beeline run` on this host and the same ones on Linux's rdma_rxe in a guest, at each
other, with either end as server: perftest with and without -R, the pingpongs, and librdmacm's examples."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from kernel_peer_test import BEELINE, BUILD, NOT_RUN, bee_device  # noqa: E402
from lab import Lab, reason_against  # noqa: E402

CONFORMANCE, VERIFY = BUILD / "bin/verbs_conformance", BUILD / "bin/verify"
STEP_S = 60  # for one program; a guest is emulated, and machines may be slow and busy
ENDS = ("host", "guest")
PERFTEST_PORT, EXAMPLES_PORT = 18515, 7174
PERFTEST_RESULT = r"\n \d+ +\d+ +\d"
TCP, UDP = 0x0106, 0x0111  # librdmacm's port spaces


# perftest's -R connects twice. The second request often comes before a server in an emulated guest listens again,
# and the kernel rejects it (between two kernels as well). This gives the server time.
LATE_CONNECT = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int rdma_connect(void* id, void* param) {
  usleep(200000);
  return ((int (*)(void*, void*))dlsym(RTLD_NEXT, "rdma_connect"))(id, param);
}
"""


# Of tests/conformance/verbs, what rdma_rxe and its library do otherwise than they should, and why.
KERNEL_DEVIATIONS = {
    "Windows.Type1GivesNoMoreThanWhatWasBound": "a peer may write past a window's end, within its region",
    "Windows.WhoseKeyWasInvalidatedLearnsWhich": "a program's completion does not carry the key",
}


class Ended(AssertionError):
    """A program that did not end well, and what both ends said."""


class StockPrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(guests=1, programs=[CONFORMANCE, VERIFY]))
        cls.guest = cls.lab.guest(0)
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="beeline-interop.")))
        (folder / "late_connect.c").write_text(LATE_CONNECT)
        cls.late_connect = folder / "late_connect.so"
        subprocess.run(["cc", "-shared", "-fPIC", folder / "late_connect.c", "-o", cls.late_connect], check=True)
        device, indices = bee_device(cls.lab)
        # What -d and the GID's index have to be, by end.
        cls.names = {"host": (device, indices[4]), "guest": ("rxe0", cls.guest.gid(4))}
        # The first packet to a neighbour whose address is not known yet may be lost.
        cls.guest.run(f"ping -c 1 -W 10 {cls.lab.ipv4}").check()

    def address(self, end):
        return self.lab.ipv4 if end == "host" else self.guest.ipv4

    def start(self, end, command):
        if end == "guest":
            return self.guest.start(command, timeout=STEP_S)
        # Not for the server's end: our card lets a request wait a moment for a listener.
        late = {"LD_PRELOAD": str(self.late_connect)} if " -R " in command and self.guest.ipv4 in command else {}
        return self.lab.host_start(BEELINE, "run", "--", *command.split(), timeout=STEP_S, env=late)

    def comes(self, end, shown):
        """Whether the shell command `shown` succeeds at that end, within half a minute."""
        loop = f"i=0; until {shown}; do [ $i -lt 300 ] || exit 1; sleep 0.1; i=$((i+1)); done"
        return (self.guest.run(loop) if end == "guest" else self.lab.host("sh", "-c", loop)).status == 0

    @staticmethod
    def listens(_end, port, _space=None):
        return f"grep -qi ':{port:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6"

    @staticmethod
    def listens_with_cm(end, port, space=TCP):
        if end == "guest":
            return f"rdma resource show cm_id | grep -q 'LISTEN.*:{port} '"
        # A listener on the card in software reserves a name (port/udp/service.h).
        return f"grep -q beeline.4791.service.{space << 16 | port:016x} /proc/net/unix"

    def exchange(self, server_end, server, client, awaited):
        """The client's output. ADDRESS, DEVICE, GID and VERIFY in the commands are those of each end."""
        def words(end, command):
            device, gid = self.names[end]
            verify = VERIFY if end == "host" else VERIFY.name
            for name, value in (("ADDRESS", self.address(server_end)), ("DEVICE", device), ("GID", gid), ("VERIFY", verify)):
                command = command.replace(name, str(value))
            return command

        client_end = "guest" if server_end == "host" else "host"
        serving = self.start(server_end, words(server_end, server))
        try:
            if not self.comes(server_end, awaited):
                raise Ended(f"{server} ({server_end}) does not listen:\n{serving.output[-3000:]}")
            played = self.start(client_end, words(client_end, client)).wait()
            if played.status:
                serving.kill()
            served = serving.wait()
        finally:
            serving.kill()
        if played.status or served.status:
            raise Ended(f"{client} (server: {server_end}): status {played.status} and {served.status}\n"
                        f"{played.output[-3000:]}\n-- the server:\n{served.output[-3000:]}")
        return played.output

    def both_roles(self, server, client, expected, port=PERFTEST_PORT, listens=listens, space=None, tries=1):
        """With each end as server: both programs end well, and the client's output matches `expected`."""
        for server_end in ENDS:
            with self.subTest(client, server_end=server_end):
                for left in reversed(range(tries)):
                    try:
                        output = self.exchange(server_end, server, client, listens(server_end, port, space))
                        break
                    except Ended:
                        if not left:
                            raise
                self.assertRegex(output, expected)

    def pingpong(self, tool, options):
        command = f"{tool} -d DEVICE -g GID -n 50 {options}"
        self.both_roles(command, f"{command} ADDRESS", r"\n50 iters in ")

    def perftest(self, tools, options):
        for tool in tools.split():
            command = f"{tool} -d DEVICE -x GID -F -n 20 {options}"
            self.both_roles(command, f"{command} ADDRESS", PERFTEST_RESULT)

    def perftest_with_cm(self, tools):
        """As users type it. A try is worth another: what LATE_CONNECT makes rare stays possible."""
        for tool in tools.split():
            command = f"{tool} -R -F -n 20"
            self.both_roles(command, f"{command} ADDRESS", PERFTEST_RESULT, PERFTEST_PORT, self.listens_with_cm, TCP, 5)

    def test_pingpongs(self):
        self.pingpong("ibv_rc_pingpong", "-c")
        self.pingpong("ibv_rc_pingpong", "-c -e -s 20000")
        self.pingpong("ibv_uc_pingpong", "-c")
        self.pingpong("ibv_ud_pingpong", "-c -s 512")
        self.pingpong("ibv_srq_pingpong", "-c -q 4")

    def test_perftest_rc(self):
        self.perftest("ib_write_bw ib_write_lat ib_send_bw ib_send_lat", "-s 8192")
        # perftest sets what the peer's card has as its own depth, so both are told the smaller one's.
        self.perftest("ib_read_bw ib_read_lat", "-s 8192 -o 16")
        self.perftest("ib_atomic_bw ib_atomic_lat", "-o 16")

    def test_perftest_uc(self):
        self.perftest("ib_write_bw ib_write_lat ib_send_bw ib_send_lat", "-c UC -s 4096")

    def test_perftest_ud(self):
        self.perftest("ib_send_bw ib_send_lat", "-c UD -s 512")

    def test_perftest_with_cm(self):
        self.perftest_with_cm("ib_write_bw ib_read_bw ib_send_lat ib_atomic_lat")

    def verify(self, service):
        # An emulated machine takes long for megabytes, and nothing paces UC for it.
        command = f"VERIFY -d DEVICE -g GID -p 18600 -c {service} -m 100000"
        self.both_roles(command, f"{command} ADDRESS", r"\npayload out \d+ in \d+", 18600)

    def test_every_byte_of_reliable_connections(self):
        """What perftest does not look at (tests/programs/verify)."""
        self.verify("rc")

    def test_every_byte_of_unreliable_connections(self):
        self.verify("uc")

    def test_every_byte_of_datagrams(self):
        self.verify("ud")

    def conformance(self, which):
        command = f"verbs_conformance -d rxe0 -g {self.guest.gid(4)} --gtest_brief=1 --gtest_filter={which}"
        return self.guest.run(f"{command} 2>&1", timeout=400)

    def test_conformance_of_the_kernels_card(self):
        """The suite that the card has to pass (conformance:verbs), where the kernel's is the device."""
        done = self.conformance(f"-Card*:{':'.join(KERNEL_DEVIATIONS)}")
        self.assertEqual(done.status, 0, done.output[-6000:])
        for deviation in KERNEL_DEVIATIONS:
            self.assertEqual(self.conformance(deviation).status, 1, f"the kernel's deviation is gone: {deviation}")

    def test_rping(self):
        self.both_roles("rping -s -a ADDRESS -C 5 -V", "rping -c -a ADDRESS -C 5 -V -v", "rdma-ping-4", EXAMPLES_PORT,
                        self.listens_with_cm, TCP)

    def test_ucmatose(self):
        self.both_roles("ucmatose -p 7174 -c 2 -C 5", "ucmatose -p 7174 -s ADDRESS -c 2 -C 5", "return status 0", EXAMPLES_PORT,
                        self.listens_with_cm, TCP)

    def test_udaddy(self):
        self.both_roles("udaddy -c 2 -C 5", "udaddy -s ADDRESS -c 2 -C 5", "return status 0", EXAMPLES_PORT,
                        self.listens_with_cm, UDP)


if __name__ == "__main__":
    if why := reason_against():
        print(f"programs_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)

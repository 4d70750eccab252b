"""Processes as they are: many at once, killed in the middle, forked, gone without cleaning up. Nothing of one run
may be felt in the next."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from place import STEP_S, OneHost, Program, free_port, on_card, pair, run

PINGPONG = ["ibv_rc_pingpong", "-g", 0, "-n", 100]

# Through libibverbs by ctypes, as any program of others: the card before, in and after a fork.
FORKS = """
import ctypes, os, sys
v = ctypes.CDLL('libibverbs.so.1', use_errno=True)
P = ctypes.c_void_p
for name in ('ibv_get_device_list', 'ibv_open_device', 'ibv_alloc_pd'):
    getattr(v, name).restype = P
v.ibv_get_device_list.argtypes = [P]
for name in ('ibv_open_device', 'ibv_alloc_pd', 'ibv_dealloc_pd', 'ibv_close_device'):
    getattr(v, name).argtypes = [P]

def first(devices):
    return ctypes.cast(devices, ctypes.POINTER(P))[0]

devices = v.ibv_get_device_list(None)
context = v.ibv_open_device(first(devices))
domain = v.ibv_alloc_pd(context)
assert context and domain
child = os.fork()
if child == 0:
    # What the parent made is dead here, and says so; a device it listed is opened anew.
    assert v.ibv_dealloc_pd(domain) != 0
    assert v.ibv_alloc_pd(context) is None
    own = v.ibv_open_device(first(devices))
    assert own and own != context
    other = v.ibv_alloc_pd(own)
    assert other and v.ibv_dealloc_pd(other) == 0 and v.ibv_close_device(own) == 0
    assert first(v.ibv_get_device_list(None))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
second = v.ibv_open_device(first(devices))
assert second and second != context, 'a device may be opened more than once'
assert v.ibv_close_device(second) == 0
assert v.ibv_dealloc_pd(domain) == 0 and v.ibv_close_device(context) == 0
assert v.ibv_dealloc_pd(domain) != 0, 'a domain that is gone'
"""


# The connection manager's descriptor, closed by a system call that nobody sees; its number goes to a file.
REUSED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
device = os.open('/dev/infiniband/rdma_cm', os.O_RDWR)
answer = ctypes.create_string_buffer(8)
create = struct.pack('=IHHQQHBB4x', 0, 24, 8, 1, ctypes.addressof(answer), 0x106, 0, 0)
assert os.write(device, create) == len(create) and answer.raw[:4] != bytes(4)
assert libc.syscall(3 if os.uname().machine == 'x86_64' else 57, device) == 0
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
assert file == device, 'the lowest free number'
assert os.write(file, b'text') == 4 and os.fstat(file).st_size == 4
os.close(file)
assert open(sys.argv[1]).read() == 'text'
again = os.open('/dev/infiniband/rdma_cm', os.O_RDWR)
assert os.write(again, create) == len(create)
"""


class Lives(unittest.TestCase):
    def setUp(self):
        self.place = OneHost()
        self.words = [*PINGPONG, "-d", self.place.device]

    def test_forks(self):
        done = run(*on_card(sys.executable, "-c", FORKS))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_descriptor_whose_number_is_used_again(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run(*on_card(sys.executable, "-c", REUSED, Path(directory, "file")))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_eight_pairs_at_once(self):
        ports = [free_port() for _ in range(8)]
        servers = [Program(on_card(*self.words, "-p", port)) for port in ports]
        clients = []
        try:
            for port, server in zip(ports, servers):
                server.await_listening(port)
            clients = [Program(on_card(*self.words, "-p", port, self.place.address)) for port in ports]
            for program in clients + servers:
                self.assertEqual(program.wait(300), 0, program.output())
        finally:
            for program in clients + servers:
                program.kill()

    def test_killed_in_the_middle(self):
        port = free_port()
        endless = ["ib_write_bw", "-d", self.place.device, "-F", "-D", 60, "-p", port]
        server = Program(on_card(*endless))
        self.addCleanup(server.kill)
        server.await_listening(port)
        client = Program(["stdbuf", "-oL", *on_card(*endless, self.place.address)])  # says at once what it says
        self.addCleanup(client.kill)
        end = time.monotonic() + STEP_S
        while "remote address" not in client.output():
            self.assertIsNone(client.process.poll(), client.output())
            self.assertLess(time.monotonic(), end, client.output())
            time.sleep(0.05)
        time.sleep(0.5)  # that was said before the first WRITE
        client.kill()
        server.kill()
        pair(self, self.place, self.words)

    def test_exit_without_cleaning_up(self):
        leaves = FORKS.split("child = os.fork()")[0]
        for _ in range(3):
            done = run(*on_card(sys.executable, "-c", leaves + "\nos._exit(0)"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = run(*on_card(sys.executable, "-c", leaves))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        pair(self, self.place, self.words)


if __name__ == "__main__":
    unittest.main(verbosity=2)

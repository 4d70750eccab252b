#!/usr/bin/env python3
"""The lab itself: two stock kernels' rxe0 at each other, with none of our code between them."""
import collections
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from lab import TIMED_OUT, Lab, LabError, reason_against  # noqa: E402
from lab.capture import check_icrc, dissect  # noqa: E402
from lab.damage import KINDS, Direction, corrupted, seed_of, udp_of_roce  # noqa: E402
from lab.icrc_check import records  # noqa: E402

DATAGRAMS = 1000
SEND_DATAGRAMS = f"""
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range({DATAGRAMS}):
    sender.sendto(number.to_bytes(4, "big") * 8, (sys.argv[1], 4791))
    time.sleep(0.0005)
"""
NOT_RUN = 77  # ctest counts this as not run


def pair(lab, program, options=""):
    """Runs a program's two ends in guests 0 and 1; the outputs of both."""
    server = lab.guest(0).start(f"{program} {options}", timeout=90)
    lab.guest(0).run("i=0; until netstat -ltn | grep -q ':18515 ' || [ $i -gt 100 ]; do usleep 100000; i=$((i+1)); done")
    client = lab.guest(1).run(f"{program} {options} {lab.guest(0).ipv4}", timeout=90)
    return server.wait().check() + client.check()


class TwoKernels(unittest.TestCase):
    """One pair of guests for all tests that leave it as it is."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="beeline-lab-test."))
        cls.lab = cls.enterClassContext(Lab(guests=2, mtu=4200, damage={"seed": 1}, share=cls.folder))

    def tearDown(self):
        self.lab.set_damage(**dict.fromkeys(KINDS, 0))

    def test_traffic_of_both_kernels_is_right(self):
        capture = pathlib.Path(self.folder, "x.pcap")
        with self.lab.capture(capture):
            for version in (4, 6):
                index = self.lab.guest(0).gid(version)
                self.assertEqual(index, self.lab.guest(1).gid(version))
                pair(self.lab, "ibv_rc_pingpong", f"-d rxe0 -g {index} -s 5000 -n 20 -c")
            pair(self.lab, "ib_write_bw", "-d rxe0 -x 1 -F -s 65536 -n 50")
        right, summary = check_icrc(capture)
        self.assertTrue(right, summary)
        self.assertGreaterEqual(summary["payload_bytes"], 50 * 65536 + 2 * 2 * 20 * 5000)
        tshark = dissect(capture)
        self.assertEqual(tshark.complaints, [])
        self.assertEqual(tshark.packets, summary["packets"])

    def test_mtu_and_addresses(self):
        said = self.lab.guest(0).run("ibv_devinfo -v -d rxe0").check()
        self.assertRegex(said, r"active_mtu:\s+4096")
        for address in (self.lab.guest(0).ipv4, self.lab.guest(0).ipv6):
            self.assertIn(f"{address}, RoCE v2", said)
            self.lab.guest(1).run(f"ping -c 3 {address}").check()
        for address in (self.lab.ipv4, self.lab.ipv6):
            self.lab.guest(1).run(f"ping -c 3 {address}").check()

    def test_damage_is_what_the_seed_says(self):
        """Datagrams from the host to guest 0: those that arrive are those that the same decisions leave."""
        capture = pathlib.Path(self.folder, "damaged.pcap")
        percent = {"drop": 5, "duplicate": 6, "reorder": 7, "corrupt": 8}
        self.lab.guest(0).run(f"ping -c 1 {self.lab.ipv4}").check()
        before = self.lab.damage_counts()
        self.lab.set_damage(seed=5, **percent)
        with self.lab.capture(capture, on=self.lab.guest(0).tap, filter="udp dst port 4791 and less 100"):
            self.lab.host(sys.executable, "-c", SEND_DATAGRAMS, self.lab.guest(0).ipv4).check()
        after = self.lab.damage_counts()
        sent, counts = [], collections.Counter()
        direction = Direction(seed_of(5, 0), sent.append)
        for number in range(DATAGRAMS):
            direction.pass_on(roce_frame(number.to_bytes(4, "big") * 8, False), percent, counts, 0)
        direction.release(1)
        arrived = [frame for _, frame, _ in records(capture.read_bytes())]
        self.assertEqual(sorted(frame[42:] for frame in arrived), sorted(frame[42:] for frame in sent))
        self.assertEqual({kind: after[kind] - before[kind] for kind in KINDS}, {kind: counts[kind] for kind in KINDS})
        self.assertGreater(min(counts[kind] for kind in KINDS), 0)
        self.assertEqual(after["lost"], 0)

    def test_commands(self):
        guest = self.lab.guest(1)
        self.assertEqual(guest.run("echo out; echo err >&2; exit 7"), (7, "out\nerr\n"))
        self.assertEqual(guest.run("head -c 300000 /dev/zero | tr '\\0' x").output, "x" * 300000)
        self.assertEqual(guest.run("echo before; sleep 1000", timeout=1).status, TIMED_OUT)
        running = guest.start("echo up; sleep 1000").wait_for("up")
        running.kill("TERM")
        self.assertEqual(running.wait().status, 128 + signal.SIGTERM)
        many = [guest.start(f"sleep 1; echo {number}") for number in range(8)]
        with self.assertRaisesRegex(LabError, "8 commands already"):
            guest.start("true")
        self.assertEqual([each.wait().output for each in many], [f"{number}\n" for number in range(8)])
        self.assertEqual(self.lab.host("sh", "-c", "echo x; sleep 1000", timeout=1), (TIMED_OUT, "x\n"))

    def test_shared_folder(self):
        self.lab.guest(0).run("echo from the guest >/share/note").check()
        self.assertEqual(pathlib.Path(self.folder, "note").read_text(), "from the guest\n")

    def test_a_guest_that_dies_is_named(self):
        with Lab(guests=1) as other:  # at the same time as the pair above
            running = other.guest(0).start("echo up; sleep 1000").wait_for("up")
            other.guest(0).process.kill()
            with self.assertRaisesRegex(LabError, "guest is gone"):
                running.wait(30)


class Ends(unittest.TestCase):
    def test_nothing_is_left_of_a_killed_lab(self):
        with tempfile.TemporaryDirectory() as folder:
            lab = subprocess.Popen([ROOT / "lab/lab", "run", "--", "echo up; sleep 1000"], stdout=subprocess.PIPE,
                                   env={**os.environ, "TMPDIR": folder})
            self.assertEqual(lab.stdout.readline(), b"up\n")
            guests = subprocess.run(["pgrep", "-P", str(lab.pid), "qemu"], capture_output=True, text=True).stdout.split()
            self.assertEqual(len(guests), 1)
            self.assertEqual(len(os.listdir(folder)), 1)
            lab.kill()
            lab.wait()
            lab.stdout.close()
            end = time.monotonic() + 20
            while time.monotonic() < end and (os.path.exists(f"/proc/{guests[0]}/exe") or os.listdir(folder)):
                time.sleep(0.1)
            self.assertFalse(os.path.exists(f"/proc/{guests[0]}/exe"))
            self.assertEqual(os.listdir(folder), [])

    def test_status_of_the_job(self):
        done = subprocess.run([ROOT / "lab/lab", "run", "--guests", "2", "--", "exit $((LAB_GUEST * 5))"])
        self.assertEqual(done.returncode, 5)


def roce_frame(payload, ipv6):
    """An Ethernet frame to port 4791 with a right UDP checksum."""
    addresses = bytes(range(32)) if ipv6 else bytes(range(8))
    length = 8 + len(payload)
    pseudo = addresses + struct.pack(">HH", 17, length)
    udp = struct.pack(">HHHH", 50000, 4791, length, 0) + payload
    summed = checksum(pseudo + udp)
    udp = udp[:6] + struct.pack(">H", summed) + udp[8:]
    if ipv6:
        return bytes(12) + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, length, 17, 64) + addresses + udp
    return bytes(12) + b"\x08\x00" + struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + addresses + udp


def checksum(data):
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF or 0xFFFF


class DamageAlone(unittest.TestCase):
    def test_corruption_is_one_bit_that_no_udp_checksum_shows(self):
        for ipv6 in (False, True):
            for size in (16, 17, 33):
                frame = roce_frame(random.Random(size).randbytes(size), ipv6)
                for seed in range(200):
                    udp = udp_of_roce(frame)
                    out = corrupted(frame, udp, random.Random(seed))
                    changed = [a ^ b for a, b in zip(frame[udp + 8:], out[udp + 8:]) if a != b]
                    self.assertEqual([bin(bits).count("1") for bits in changed], [1])
                    self.assertEqual(out, roce_frame(out[udp + 8:], ipv6), (size, seed))

    def outcome(self, seed, number=2000, **percent):
        sent = []
        direction = Direction(seed, sent.append)
        counts = collections.Counter()
        frames = [roce_frame(struct.pack(">IIII", 4, 0, 0, i), False) for i in range(number)]
        for frame in frames:
            direction.pass_on(frame, {**dict.fromkeys(KINDS, 0), **percent}, counts, 0)
        direction.release(1)
        return frames, sent, counts

    def test_each_kind_does_what_it_says(self):
        frames, sent, counts = self.outcome(1)
        self.assertEqual(sent, frames)
        frames, sent, counts = self.outcome(1, drop=10)
        self.assertEqual(len(sent), len(frames) - counts["drop"])
        frames, sent, counts = self.outcome(1, duplicate=10)
        self.assertEqual(len(sent), len(frames) + counts["duplicate"])
        frames, sent, counts = self.outcome(1, reorder=10)
        self.assertEqual(sorted(sent), sorted(frames))
        self.assertNotEqual(sent, frames)
        frames, sent, counts = self.outcome(1, corrupt=10)
        self.assertEqual(sum(a != b for a, b in zip(frames, sent)), counts["corrupt"])

    def test_a_seed_repeats(self):
        mixed = {"drop": 5, "duplicate": 5, "reorder": 5, "corrupt": 5}
        self.assertEqual(self.outcome(3, **mixed), self.outcome(3, **mixed))
        self.assertNotEqual(self.outcome(3, **mixed)[1], self.outcome(4, **mixed)[1])


if __name__ == "__main__":
    if why := reason_against():
        print(f"lab_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""Holds icrc_check.py against the captured sessions, against damage, and in every format it claims to read."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "rxe-write.pcap"
ETHERNET, COOKED, COOKED2 = 1, 113, 276


def check(*names):
    done = subprocess.run([sys.executable, "-B", HERE / "icrc_check.py", *names], capture_output=True, text=True,
                          check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def golden_frames():
    data, at, frames = GOLDEN.read_bytes(), 24, []
    while at < len(data):
        kept = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + kept])
        at += 16 + kept
    return frames


def pcap(frames, link=ETHERNET, order="<", magic=0xA1B2C3D4, missing=0):
    out = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link)
    for frame in frames:
        out += struct.pack(order + "IIII", 1, 2, len(frame), len(frame) + missing) + frame
    return out


def ipv6_frame():
    """An acknowledgement over IPv6, its ICRC computed here step by step."""
    packet = bytes([0x11, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0, 0, 0, 1, 0x1F, 0, 0, 1])
    addresses = bytes.fromhex("fd00" + 28 * "0" + "01")[:16] + bytes.fromhex("fd00" + 28 * "0" + "02")[:16]
    length = 8 + len(packet) + 4
    udp = struct.pack(">HHH", 0xC123, 4791, length)
    tail = struct.pack(">HB", length, 17)
    covered = (b"\xff" * 8 + b"\x6f\xff\xff\xff" + tail + b"\xff" + addresses + udp + b"\xff\xff" + packet[:4] + b"\xff" +
               packet[5:])
    icrc = struct.pack("<I", zlib.crc32(covered))
    return (b"\0" * 12 + b"\x86\xdd" + b"\x60\x12\x34\x56" + tail + b"\x40" + addresses + udp + b"\xab\xcd" + packet +
            icrc)


def train_frame(packets=5, size=1040, last=600, version=4, ack=False):
    """A datagram that the kernel is yet to cut: the k-th part has the ICRC of identification k. An ACK may be its end."""
    payloads = []
    for place in range(packets):
        length = last if place == packets - 1 else size
        opcode, psn = (0x11, 0x123456) if ack and place == packets - 1 else (0x07, 0xFFFFFE + place & 0xFFFFFF)
        packet = struct.pack(">BBHII", opcode, 0x40, 0xFFFF, 0x12, psn) + bytes((place * 7 + i) % 251 for i in range(length - 16))
        ip = ip_header(version, length + 8, place) + struct.pack(">HHHH", 0xC123, 4791, length + 8, 0)
        covered = bytearray(ip + packet)
        for at in ((1, 8, 10, 11, 26, 27, 32) if version == 4 else (1, 2, 3, 7, 46, 47, 52)):
            covered[at] = 0xFF
        if version == 6:
            covered[0] |= 0x0F
        payloads.append(packet + struct.pack("<I", zlib.crc32(bytes(covered), zlib.crc32(b"\xff" * 8))))
    data = b"".join(payloads)
    return (b"\0" * 12 + (b"\x08\x00" if version == 4 else b"\x86\xdd") + ip_header(version, len(data) + 8, 0) +
            struct.pack(">HHHH", 0xC123, 4791, len(data) + 8, 0) + data)


def ip_header(version, length, identification):
    if version == 4:
        return struct.pack(">BBHHHBBHII", 0x45, 0, 20 + length, identification, 0x4000, 64, 17, 0, 0x0A000001, 0x0A000002)
    return struct.pack(">IHBB", 0x60000000, length, 17, 64) + bytes(15) + b"\x01" + bytes(15) + b"\x02"


class IcrcCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_on(self, data):
        path = pathlib.Path(self.folder.name) / "x.pcap"
        path.write_bytes(data)
        return check(path)

    def test_every_golden_packet_is_right(self):
        status, summary = check(*sorted(HERE.glob("rxe-*.pcap")))
        self.assertEqual(status, 0)
        self.assertEqual((summary["packets"], summary["good"], summary["bad"]), (394, 394, 0))
        self.assertEqual(summary["opcodes"]["0x0f"], {"packets": 8, "payload_bytes": 8 * (3000 - 2 * 1024)})
        self.assertEqual(summary["opcodes"]["0x02"], {"packets": 8, "payload_bytes": 8 * (3001 - 2 * 1024)})

    def test_payload_of_the_write_session(self):
        status, summary = check(GOLDEN)
        self.assertEqual((status, summary["payload_bytes"]), (0, 8 * 3000))

    def test_any_damaged_byte_that_counts_is_bad(self):
        frame = golden_frames()[0]
        # Total length, identification, addresses, source port, opcode, destination, payload, ICRC.
        for at in (16 + 1, 18, 26, 33, 34, 42, 49, 90, len(frame) - 1):
            damaged = bytearray(frame)
            damaged[at] ^= 1
            status, summary = self.run_on(pcap([frame, bytes(damaged)]))
            self.assertEqual((status, summary["bad"], summary["good"]), (1, 1, 1), f"byte {at}")
            self.assertEqual(len(summary["errors"]), 1)

    def test_fields_that_routers_change_do_not_count(self):
        for at in (15, 22, 24, 25, 40, 41, 46):  # ToS, TTL, checksum, UDP checksum, BTH byte 4
            changed = bytearray(golden_frames()[0])
            changed[at] ^= 1
            self.assertEqual(self.run_on(pcap([bytes(changed)]))[0], 0, f"byte {at}")

    def test_formats(self):
        frames = golden_frames()
        kinds = {
            ETHERNET: frames,
            COOKED: [bytes(14) + frame[12:] for frame in frames],
            COOKED2: [frame[12:14] + bytes(18) + frame[14:] for frame in frames],
        }
        for link, framed in kinds.items():
            for order in "<>":
                for magic in (0xA1B2C3D4, 0xA1B23C4D):
                    status, summary = self.run_on(pcap(framed, link, order, magic))
                    self.assertEqual((status, summary["good"]), (0, 32), (link, order, hex(magic)))
        tagged = [frame[:12] + b"\x81\x00\x00\x05" + frame[12:] for frame in frames]
        self.assertEqual(self.run_on(pcap(tagged))[1]["good"], 32)

    def test_ipv6(self):
        frame = ipv6_frame()
        self.assertEqual(self.run_on(pcap([frame]))[0], 0)
        for at, covered in ((15, False), (17, False), (21, False), (60, False), (22, True), (50, True), (70, True)):
            changed = bytearray(frame)
            changed[at] ^= 1
            self.assertEqual(self.run_on(pcap([bytes(changed)]))[0], 1 if covered else 0, f"byte {at}")

    def test_trains_are_cut_and_every_part_is_judged(self):
        for version in (4, 6):
            for shape in ({}, {"packets": 15, "size": 4112, "last": 4112}, {"packets": 2, "size": 16, "last": 16},
                          {"packets": 62, "size": 1040, "last": 16}, {"packets": 2, "size": 1056, "last": 1040},
                          {"packets": 2, "size": 1040, "last": 20, "ack": True}, {"packets": 5, "last": 20, "ack": True}):
                frame = train_frame(version=version, **shape)
                packets = shape.get("packets", 5)
                status, summary = self.run_on(pcap([frame]))
                self.assertEqual((status, summary["trains"], summary["packets_in_trains"], summary["good"]),
                                 (0, 1, packets, packets), (version, shape, summary))

    def test_a_damaged_part_of_a_train_is_bad_alone(self):
        frame = bytearray(train_frame())
        start = 14 + 28
        for place in range(1, 5):
            damaged = bytearray(frame)
            damaged[start + place * 1040 + 100] ^= 1
            status, summary = self.run_on(pcap([bytes(damaged)]))
            self.assertEqual((status, summary["bad"], summary["good"]), (1, 1, 4), place)
        frame[start + 100] ^= 1  # then nothing says where to cut
        status, summary = self.run_on(pcap([bytes(frame)]))
        self.assertEqual((status, summary["trains"], summary["good"]), (1, 0, 0))
        frame = bytearray(train_frame())
        frame[14 + 5] ^= 1  # another identification than the sender knew
        self.assertEqual(self.run_on(pcap([bytes(frame)]))[0], 1)

    def test_truncated(self):
        frames = golden_frames()
        status, summary = self.run_on(pcap([frames[0]]) + pcap([frames[1][:60]], missing=40)[24:])
        self.assertEqual((status, summary["truncated"], summary["good"]), (1, 1, 1))
        for cut in (1, 1000):
            status, summary = self.run_on(pcap(frames[:2])[:-cut])
            self.assertEqual((status, summary["truncated"], summary["good"]), (1, 1, 1))
        status, summary = self.run_on(pcap(frames[:2]) + b"half")
        self.assertEqual((status, summary["truncated"], summary["good"]), (1, 1, 2))

    def test_a_capture_without_roce_proves_nothing(self):
        arp = bytes(12) + b"\x08\x06" + bytes(46)
        status, summary = self.run_on(pcap([arp]))
        self.assertEqual((status, summary["other"], summary["packets"]), (1, 1, 0))
        self.assertEqual(self.run_on(b"")[0], 1)
        self.assertEqual(self.run_on(pcap([arp], link=147))[0], 1)

    def test_usage(self):
        self.assertEqual(check()[0], 2)
        self.assertEqual(check("/nonexistent.pcap")[0], 2)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Joins two network devices and damages the RoCE v2 packets that pass, from a seed.

As a program (lab.Lab starts it): damage.py DEVICE DEVICE, then one JSON object per line on
standard input: {"seed": 1, "drop": 2, ...} sets percentages, {} asks; each is answered with the
counters. Every packet other than UDP 4791 passes as it is.
"""
import heapq
import json
import pathlib
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time

ROCE_PORT = 4791
KINDS = ("drop", "duplicate", "reorder", "corrupt")
# A packet that is held back goes out behind so many others, or when nothing comes for so long.
HELD_FOR_PACKETS, HELD_FOR_S = 3, 0.005
ETH_P_ALL, PACKET_IGNORE_OUTGOING, PACKET_STATISTICS, SO_RCVBUFFORCE = 3, 23, 6, 33


def udp_of_roce(frame):
    """Offset of the UDP header of a RoCE packet, or None."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23] == 17:
        udp = 14 + (frame[14] & 15) * 4
    elif kind == b"\x86\xdd" and frame[20] == 17:
        udp = 54
    else:
        return None
    return udp if frame[udp + 2:udp + 4] == struct.pack(">H", ROCE_PORT) else None


def corrupted(frame, udp, choice):
    """The frame with one bit of the UDP payload flipped and a UDP checksum that does not show it:
    only the ICRC can."""
    out = bytearray(frame)
    length = struct.unpack_from(">H", frame, udp + 4)[0]
    at, bit = udp + 8 + choice.randrange(length - 8), 1 << choice.randrange(8)
    out[at] ^= bit
    checksum = struct.unpack_from(">H", frame, udp + 6)[0]
    if checksum:
        # RFC 1624: HC' = ~(~HC + ~m + m'), for the word that changed.
        word = at - (at - udp) % 2
        old, new = (int.from_bytes(data[word:word + 2].ljust(2, b"\0"), "big") if word + 1 < udp + length
                    else data[word] << 8 for data in (frame, out))
        total = (~checksum & 0xFFFF) + (~old & 0xFFFF) + new
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", out, udp + 6, ~total & 0xFFFF or 0xFFFF)
    return bytes(out)


def seed_of(seed, direction):
    """Directions: 0 towards guest 0, 1 from it."""
    return seed * 2 + direction


class Direction:
    """What comes in at one device and leaves at the other."""

    def __init__(self, seed, send):
        self.choice, self.send = random.Random(seed), send
        self.held = []  # heap of (number of the packet behind which it leaves, order, time, frame)
        self.number = 0

    def pass_on(self, frame, percent, counts, now):
        udp = udp_of_roce(frame)
        if udp is None:
            return self.send(frame)
        self.number += 1
        counts["packets"] += 1
        fate = {kind: self.choice.random() * 100 < percent[kind] for kind in KINDS}
        for kind in KINDS:
            counts[kind] += fate[kind]
        if fate["corrupt"]:
            frame = corrupted(frame, udp, self.choice)
        if not fate["drop"]:
            for _ in range(2 if fate["duplicate"] else 1):
                if fate["reorder"]:
                    heapq.heappush(self.held, (self.number + HELD_FOR_PACKETS, len(self.held), now, frame))
                else:
                    self.send(frame)
        return self.release(now)

    def release(self, now):
        while self.held and (self.held[0][0] <= self.number or now - self.held[0][2] > HELD_FOR_S):
            self.send(heapq.heappop(self.held)[3])


def open_device(name):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    sock.setsockopt(263, PACKET_IGNORE_OUTGOING, 1)
    sock.bind((name, ETH_P_ALL))
    sock.setblocking(False)
    return sock


class Forwarder:
    def __init__(self, names):
        self.devices = [open_device(name) for name in names]
        self.percent = dict.fromkeys(KINDS, 0.0)
        self.counts = dict.fromkeys(("packets", *KINDS, "lost"), 0)
        self.start_from(0)

    def start_from(self, seed):
        """One sequence of decisions per direction, so that they do not depend on how the two interleave."""
        senders = [self.sender(device) for device in reversed(self.devices)]
        self.directions = [Direction(seed_of(seed, i), send) for i, send in enumerate(senders)]

    def sender(self, device):
        def send(frame):
            try:
                device.send(frame)
            except (BlockingIOError, OSError):
                self.counts["lost"] += 1
        return send

    def run(self):
        poll = select.poll()
        for device in (*self.devices, sys.stdin):
            poll.register(device, select.POLLIN)
        while True:
            waiting = any(direction.held for direction in self.directions)
            ready = {fd for fd, _ in poll.poll(HELD_FOR_S * 1000 if waiting else None)}
            now = time.monotonic()
            for device, direction in zip(self.devices, self.directions):
                if device.fileno() in ready:
                    self.drain(device, direction, now)
                direction.release(now)
            if sys.stdin.fileno() in ready and not self.obey():
                return

    def drain(self, device, direction, now):
        for _ in range(64):
            try:
                frame = device.recv(65536)
            except BlockingIOError:
                return
            direction.pass_on(frame, self.percent, self.counts, now)

    def obey(self):
        line = sys.stdin.readline()
        if not line:
            return False
        wish = json.loads(line)
        if "seed" in wish:
            self.start_from(wish.pop("seed"))
        self.percent.update(wish)
        for device in self.devices:
            # The kernel counts what we were too slow for, and forgets it when asked.
            self.counts["lost"] += struct.unpack("II", device.getsockopt(263, PACKET_STATISTICS, 8))[1]
        print(json.dumps(self.counts), flush=True)
        return True


class Damage:
    """The forwarder as a child of Lab."""

    def __init__(self, in_namespace, seed=1, **percentages):
        self._lock = threading.Lock()
        self._process = subprocess.Popen(in_namespace([sys.executable, "-B", str(pathlib.Path(__file__).resolve()),
                                                       "near1", "far1"]),
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.set(seed=seed, **percentages)

    def set(self, **wish):
        if wrong := set(wish) - {"seed", *KINDS}:
            raise ValueError(f"damage is {', '.join(KINDS)} and seed, not {', '.join(wrong)}")
        with self._lock:
            self._process.stdin.write(json.dumps(wish) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], 20)[0]:
                raise TimeoutError("the damage forwarder does not answer")
            answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the damage forwarder ended with status {self._process.wait()}")
        return json.loads(answer)

    def counts(self):
        return self.set()

    def close(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


if __name__ == "__main__":
    Forwarder(sys.argv[1:3]).run()

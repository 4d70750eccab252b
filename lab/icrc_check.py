#!/usr/bin/env python3
"""Recomputes the ICRC of every RoCE v2 packet in capture files, and sums their payload.

Usage: icrc_check.py FILE.pcap ...        (classic pcap; Ethernet, Linux cooked v1 and v2; IPv4 and IPv6)

Shares no code with Beeline, so that a mistake there does not confirm itself here. Prints one
JSON object:
  {"files": 1, "packets": 32, "good": 32, "bad": 0, "truncated": 0, "other": 0, "probes": 0,
   "trains": 0, "packets_in_trains": 0, "payload_bytes": 24000, "opcodes": {"0x06": {"packets": 8, "payload_bytes": 8192}, ...},
   "errors": ["FILE: record 7: ..."]}
`other` is what is no UDP datagram to port 4791; `probes` are the datagrams by which Beeline's processes
learn the order of their sockets (src/port/udp/steering.h), which are no RoCE packets. `trains` are datagrams that the kernel was
yet to cut (UDP_SEGMENT; captured before that): a capture does not say where, but the ICRC of the first packet is right under
one length only. Each packet of a train is judged on its own, the k-th with the identification that it will get: that
of the train, plus k. Exit status 0 when there is at least one RoCE packet and every one of them is whole and right; 1
otherwise; 2 for wrong usage.
"""
import json
import struct
import sys
import zlib

ROCE_PORT = 4791
ETHERTYPES = {0x0800: 4, 0x86DD: 6}
VLAN_TAGS = (0x8100, 0x88A8)
MAX_ERRORS = 10
BTH, AETH, ICRC = 12, 4, 4
RC_ACKNOWLEDGE = 0x11
LONGEST = 4096 + 64  # bytes of a packet, from BTH to ICRC, at the largest path MTU
PROBE_BYTES, PROBE_MAGIC = 16, b"\xbe\xe1"  # and the first byte, the opcode of a RoCE packet, is 0xff

# Extension headers behind BTH, in bytes, by the low five opcode bits of the connected services ...
CONNECTED = {0x00: 0, 0x01: 0, 0x02: 0, 0x03: 4, 0x04: 0, 0x05: 4, 0x06: 16, 0x07: 0, 0x08: 0, 0x09: 4, 0x0A: 16,
             0x0B: 20, 0x0C: 16, 0x0D: 4, 0x0E: 0, 0x0F: 4, 0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28,
             0x16: 4, 0x17: 4}
# ... and by the whole opcode: reliable, unreliable, datagram, congestion notification.
EXTENSIONS = {**CONNECTED, **{0x20 + op: n for op, n in CONNECTED.items() if op <= 0x0B}, 0x64: 8, 0x65: 12, 0x81: 0}


class Probe(Exception):
    """A datagram to port 4791 that is not meant as a RoCE packet."""


class Malformed(Exception):
    """A packet whose lengths contradict each other."""


class Truncated(Exception):
    """A packet or file of which the end is missing."""


def records(data):
    """Yields (link type, bytes, length on the wire) for each record of a classic pcap file."""
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">",
             b"\xa1\xb2\x3c\x4d": ">"}.get(data[:4])
    if order is None or len(data) < 24:
        raise Malformed("not a classic pcap file")
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    while at < len(data):
        if at + 16 > len(data):
            raise Truncated("the file ends within a record header")
        kept, on_wire = struct.unpack_from(order + "II", data, at + 8)
        at += 16
        if at + kept > len(data):
            raise Truncated("the file ends within a record")
        yield link, data[at:at + kept], on_wire
        at += kept


def network_layer(link, frame):
    """(IP version, packet) of a frame, or None when it carries no IP."""
    if link == 1:  # Ethernet
        kind_at, start = 12, 14
    elif link == 113:  # Linux cooked v1
        kind_at, start = 14, 16
    elif link == 276:  # Linux cooked v2
        kind_at, start = 0, 20
    else:
        raise Malformed(f"link type {link} is not supported")
    while len(frame) >= start:
        kind = struct.unpack_from(">H", frame, kind_at)[0]
        if kind not in VLAN_TAGS or link != 1:
            return (ETHERTYPES[kind], frame[start:]) if kind in ETHERTYPES else None
        kind_at, start = start + 2, start + 4
    return None


def udp_of_ipv4(ip):
    """(offset of UDP, end of the packet) or None."""
    if len(ip) < 20:
        raise Malformed("half an IPv4 header")
    header, total = (ip[0] & 0x0F) * 4, struct.unpack_from(">H", ip, 2)[0]
    fragment = struct.unpack_from(">H", ip, 6)[0] & 0x3FFF
    if ip[9] != 17 or fragment:
        return None
    if header < 20 or total < header + 8:
        raise Malformed("IPv4 lengths contradict each other")
    return header, total


def udp_of_ipv6(ip):
    if len(ip) < 40:
        raise Malformed("half an IPv6 header")
    if ip[6] != 17:
        return None
    return 40, 40 + struct.unpack_from(">H", ip, 4)[0]


def masked(ip, version, udp):
    """What the ICRC covers, with the fields that may change on the way set to ones."""
    covered = bytearray(ip[:-ICRC])
    if version == 4:
        covered[1] = covered[8] = covered[10] = covered[11] = 0xFF
    else:
        covered[0] |= 0x0F
        covered[1] = covered[2] = covered[3] = covered[7] = 0xFF
    covered[udp + 6] = covered[udp + 7] = 0xFF
    covered[udp + 8 + 4] = 0xFF
    return bytes(covered)


def check_packet(version, ip):
    """None when it is no RoCE packet; otherwise (opcode, payload bytes, whether the ICRC matches)."""
    place = udp_of_ipv4(ip) if version == 4 else udp_of_ipv6(ip)
    if place is None:
        return None
    udp, end = place
    if len(ip) < udp + 8 or struct.unpack_from(">H", ip, udp + 2)[0] != ROCE_PORT:
        return None
    if end > len(ip):
        raise Malformed("the IP length goes beyond the frame")
    ip = ip[:end]
    if struct.unpack_from(">H", ip, udp + 4)[0] != end - udp:
        raise Malformed("UDP and IP lengths differ")
    packet = ip[udp + 8:]
    if len(packet) == PROBE_BYTES and packet[0] == 0xFF and packet[2:4] == PROBE_MAGIC:
        raise Probe
    if len(packet) < BTH + ICRC:
        raise Malformed("shorter than BTH and ICRC")
    opcode, pad = packet[0], packet[1] >> 4 & 3
    if opcode not in EXTENSIONS:
        raise Malformed(f"unknown opcode 0x{opcode:02x}")
    payload = len(packet) - BTH - EXTENSIONS[opcode] - pad - ICRC
    if payload < 0:
        raise Malformed(f"too short for opcode 0x{opcode:02x}")
    crc = zlib.crc32(masked(ip, version, udp), zlib.crc32(b"\xff" * 8))
    return opcode, payload, struct.pack("<I", crc) == packet[-ICRC:]


def part(version, ip, udp, begin, end, place):
    """The packet that the kernel cuts out of a train, from `begin` to `end` of the UDP payload."""
    headers, length = bytearray(ip[:udp + 8]), end - begin + 8
    if version == 4:
        identification = struct.unpack_from(">H", ip, 4)[0]
        struct.pack_into(">HH", headers, 2, udp + length, identification + place & 0xFFFF)
    else:
        struct.pack_into(">H", headers, 4, length)
    struct.pack_into(">H", headers, udp + 4, length)
    return bytes(headers) + ip[udp + 8 + begin:udp + 8 + end]


def follows(first, other):
    """Whether two packets may be neighbours of one queue pair: P_Key, destination, and PSN, but for an ACK at the end."""
    psn = int.from_bytes(first[9:12], "big") + 1 & 0xFFFFFF
    is_last_ack = other[0] == RC_ACKNOWLEDGE and len(other) == BTH + AETH + ICRC
    return other[2:4] == first[2:4] and other[5:8] == first[5:8] and (other[9:12] == psn.to_bytes(3, "big") or is_last_ack)


def is_right(version, ip):
    """None: it is no RoCE packet."""
    try:
        result = check_packet(version, ip)
        return result and result[2]
    except Malformed:
        return False


def cut(version, ip):
    """The packets of a train that is to be cut yet; None when it is none."""
    place = udp_of_ipv4(ip) if version == 4 else udp_of_ipv6(ip)
    if place is None or len(ip) < place[1] or place[1] < place[0] + 8 + BTH + ICRC:
        return None
    udp, end = place
    data = ip[udp + 8:end]
    for size in range(BTH + ICRC, min(LONGEST, len(data) - BTH - ICRC) + 1, 4):
        if follows(data, data[size:]) and is_right(version, part(version, ip, udp, 0, size, 0)):
            return [part(version, ip, udp, at, min(at + size, len(data)), number)
                    for number, at in enumerate(range(0, len(data), size))]
    return None


class Summary:
    def __init__(self):
        self.counts = dict.fromkeys(("files", "packets", "good", "bad", "truncated", "other", "probes", "trains",
                                     "packets_in_trains", "payload_bytes"), 0)
        self.opcodes = {}
        self.errors = []

    def error(self, kind, text):
        self.counts[kind] += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(text)

    def add_frame(self, where, link, frame, on_wire):
        network = network_layer(link, frame)
        if len(frame) < on_wire:
            return self.error("truncated", f"{where}: {len(frame)} of {on_wire} bytes captured")
        if network and is_right(*network) is False and (parts := cut(*network)):
            self.counts["trains"] += 1
            self.counts["packets_in_trains"] += len(parts)
            for number, packet in enumerate(parts):
                self.add_packet(f"{where}, part {number}", network[0], packet)
            return None
        return self.add_packet(where, *network) if network else self.add_other()

    def add_other(self):
        self.counts["other"] += 1

    def add_packet(self, where, version, ip):
        try:
            result = check_packet(version, ip)
        except Malformed as problem:
            self.counts["packets"] += 1
            return self.error("bad", f"{where}: {problem}")
        if result is None:
            return self.add_other()
        opcode, payload, right = result
        self.counts["packets"] += 1
        if not right:
            return self.error("bad", f"{where}: wrong ICRC (opcode 0x{opcode:02x})")
        self.counts["good"] += 1
        self.counts["payload_bytes"] += payload
        row = self.opcodes.setdefault(f"0x{opcode:02x}", {"packets": 0, "payload_bytes": 0})
        row["packets"] += 1
        row["payload_bytes"] += payload
        return None

    def add_file(self, name):
        self.counts["files"] += 1
        with open(name, "rb") as file:
            data = file.read()
        number = 0
        try:
            for number, (link, frame, on_wire) in enumerate(records(data), 1):
                where = f"{name}: record {number}"
                try:
                    self.add_frame(where, link, frame, on_wire)
                except Probe:
                    self.counts["probes"] += 1
                except Malformed as problem:
                    self.counts["packets"] += 1
                    self.error("bad", f"{where}: {problem}")
        except Malformed as problem:
            self.error("bad", f"{name}: {problem}")
        except Truncated as problem:
            self.error("truncated", f"{name}: behind record {number}: {problem}")

    def ok(self):
        return self.counts["good"] > 0 and self.counts["bad"] == 0 and self.counts["truncated"] == 0

    def json(self):
        return json.dumps({**self.counts, "opcodes": dict(sorted(self.opcodes.items())), "errors": self.errors})


def main(names):
    if not names:
        print("usage: icrc_check.py FILE.pcap ...", file=sys.stderr)
        return 2
    summary = Summary()
    for name in names:
        try:
            summary.add_file(name)
        except OSError as problem:
            print(f"icrc_check.py: {name}: {problem.strerror}", file=sys.stderr)
            return 2
    print(summary.json())
    return 0 if summary.ok() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets to corpus/, from the captured sessions in ../golden.

Usage: make_corpus.py      (run again when a target's input format changes; the result is committed)
"""
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
CLIENT = bytes([10, 77, 0, 3])
ETHERNET_IPV4_UDP = 14 + 20 + 8

# queue_pair.cc: enum Command
PACKET, RAW_PACKET, PASS_TIME, POST_SEND, POST_RECV, TRANSMIT, POLL, MODIFY, TOGGLE_REGION, SET_WINDOW = range(10)
SEND, SEND_IMM, WRITE, WRITE_IMM, READ = range(5)
READ_REQUEST, READ_RESPONSES, ACKNOWLEDGE = 0x0C, range(0x0D, 0x11), 0x11
FULL = {0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E}
HAS_RETH, HAS_AETH = {0x06, 0x0A, 0x0B, 0x0C}, {0x0D, 0x0F, 0x10, 0x11}
THREE_PACKETS = 612  # bytes, at the fuzzed queue pair's MTU of 256


def frames_of(path):
    data, at = path.read_bytes(), 24
    while at < len(data):
        kept = struct.unpack_from("<I", data, at + 8)[0]
        yield data[at + 16:at + 16 + kept]
        at += 16 + kept


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def wire_seeds():
    """One datagram of each captured opcode, behind the six bytes that wire.cc takes for addresses."""
    seen = set()
    for path in sorted(GOLDEN.glob("rxe-*.pcap")):
        for frame in frames_of(path):
            datagram = frame[ETHERNET_IPV4_UDP:]
            if datagram[0] in seen:
                continue
            seen.add(datagram[0])
            prefix = bytes([len(seen) % 4]) + frame[18:20] + frame[34:36] + frame[29:30]
            write("wire", f"opcode-{datagram[0]:02x}", prefix + datagram)


def record(frame, order="<", missing=0):
    return struct.pack(order + "IIII", 1, 2, len(frame), len(frame) + missing) + frame


def header(order="<", magic=0xA1B2C3D4):
    return struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, 1)


def ipv6(frame):
    """The frame's UDP datagram behind an IPv6 header."""
    udp = frame[34:]
    return frame[:12] + b"\x86\xdd\x60\0\0\0" + struct.pack(">HBB", len(udp), 17, 64) + bytes(31) + b"\1" + udp


def pcap_seeds():
    acks = {path.stem: [f for f in frames_of(path) if len(f) < 100][:2] for path in sorted(GOLDEN.glob("rxe-*.pcap"))}
    for name, frames in acks.items():
        if frames:
            write("pcap", name, header() + b"".join(map(record, frames)))
    ack = acks["rxe-write"][0]
    write("pcap", "big-endian", header(">") + record(ack, ">"))
    write("pcap", "nanoseconds", header("<", 0xA1B23C4D) + record(ack))
    write("pcap", "ipv6", header() + record(ipv6(ack)))
    write("pcap", "cut", header() + record(ack[:50], missing=12))
    write("pcap", "half", header() + record(ack)[:40])


def packet(opcode, difference=0, bits=1, size=100, reth=(0, 0, THREE_PACKETS), aeth=(0x1F, 1)):
    out = bytes([PACKET, opcode, difference & 0xFF, bits])
    if opcode not in (READ_REQUEST, ACKNOWLEDGE):
        out += bytes([2 if opcode in FULL else size])
    if opcode in HAS_RETH:
        out += struct.pack(">BHH", *reth)
    if opcode in HAS_AETH:
        out += bytes(aeth)
    return out


def setup(flags=0, peer_psn=0x000010, our_psn_high=0xFFFF):
    return bytes([flags]) + peer_psn.to_bytes(3, "big") + our_psn_high.to_bytes(2, "big")


def post_send(opcode, bits=1, length=THREE_PACKETS):
    return struct.pack(">BBBH", POST_SEND, opcode, bits, length)


def pass_time(exponent):
    return bytes([PASS_TIME, exponent])


RECEIVE = bytes([POST_RECV, 63])
SEND_ALL = bytes([TRANSMIT, 7, 0])
REFUSE = bytes([TRANSMIT, 7, 1])
FAULT = bytes([TRANSMIT, 0, 2])
COMPLETIONS = bytes([POLL])


class SessionScript:
    """What one side of a captured session lived through, as a script: PSN distances and
    message lengths in packets are those of the capture."""

    def __init__(self, path, qpn, client):
        self.out = setup() + RECEIVE * 8
        self.sent = None  # PSN of our last request packet
        self.expected = None  # PSN of the peer's next request
        for frame in frames_of(path):
            datagram = frame[ETHERNET_IPV4_UDP:]
            if int.from_bytes(datagram[5:8], "big") == qpn and datagram[0] <= ACKNOWLEDGE:
                ours = (frame[26:30] == CLIENT) == client
                (self.send if ours else self.receive)(datagram)
        self.out += COMPLETIONS

    def send(self, datagram):
        opcode, psn = datagram[0], int.from_bytes(datagram[9:12], "big")
        if opcode in READ_RESPONSES or opcode == ACKNOWLEDGE:
            self.out += SEND_ALL
            return
        self.sent = psn
        if opcode in (0x00, 0x06, 0x04, READ_REQUEST):
            work = {0x06: WRITE, READ_REQUEST: READ}.get(opcode, SEND)
            self.out += post_send(work, length=2 if opcode == 0x04 else THREE_PACKETS) + SEND_ALL

    def receive(self, datagram):
        opcode, psn = datagram[0], int.from_bytes(datagram[9:12], "big")
        if opcode in READ_RESPONSES or opcode == ACKNOWLEDGE:
            self.out += packet(opcode, psn - self.sent) + COMPLETIONS
            return
        difference = 0 if self.expected is None else psn - self.expected
        self.out += packet(opcode, difference, bits=datagram[8] >> 7) + SEND_ALL
        if difference == 0:
            self.expected = psn + (3 if opcode == READ_REQUEST else 1)
        if opcode in (0x02, 0x04):
            self.out += COMPLETIONS + RECEIVE


def queue_pair_seeds():
    for name, qpn in (("write", 17), ("read", 18), ("send", 19), ("sendlat", 20)):
        for side in ("client", "server"):
            script = SessionScript(GOLDEN / f"rxe-{name}.pcap", qpn, side == "client")
            write("queue_pair", f"{name}-{side}", script.out)
    scripts = {
        "timeout": setup(8) + (post_send(SEND) + SEND_ALL + (pass_time(16) + SEND_ALL) * 4 + COMPLETIONS) * 2,
        "nak-sequence": setup() + post_send(WRITE) + SEND_ALL + packet(ACKNOWLEDGE, -2, aeth=(0x60, 0)) + SEND_ALL +
                        packet(ACKNOWLEDGE) + COMPLETIONS,
        "nak-access": setup() + post_send(READ) * 2 + SEND_ALL + packet(ACKNOWLEDGE, 0, aeth=(0x62, 0)) + COMPLETIONS,
        "rnr": setup(16) + post_send(SEND) + (SEND_ALL + packet(ACKNOWLEDGE, -2, aeth=(0x2C, 0)) + pass_time(14)) * 3 +
               COMPLETIONS,
        "rnr-as-responder": setup(32) + packet(0x04) + SEND_ALL + RECEIVE + packet(0x04, -1) + SEND_ALL + COMPLETIONS,
        "gap": setup(32) + RECEIVE + packet(0x00) + packet(0x02, 1) + SEND_ALL + packet(0x02) + SEND_ALL + COMPLETIONS,
        "bad-key": setup() + packet(0x0A, reth=(3, 0, 100)) + SEND_ALL + COMPLETIONS,
        "beyond": setup() + packet(0x0C, reth=(0, 1900, 600)) + SEND_ALL,
        "huge-read": setup(2) + packet(0x0C, reth=(0, 0, 0x8000)) + SEND_ALL,
        "region-goes": setup() + packet(0x06, bits=0) + bytes([TOGGLE_REGION]) + packet(0x07) + SEND_ALL,
        "write-imm": setup() + RECEIVE + packet(0x06, reth=(0, 0, 356), bits=0) + packet(0x09) + SEND_ALL +
                     packet(0x0B, reth=(0, 0, 100)) + SEND_ALL + COMPLETIONS,
        "refused": setup() + post_send(WRITE_IMM) + REFUSE + SEND_ALL + packet(ACKNOWLEDGE) + COMPLETIONS,
        "fault": setup() + post_send(SEND) * 2 + FAULT + SEND_ALL + COMPLETIONS,
        "inline-fence": setup() + post_send(READ) + post_send(SEND_IMM, 0x0F, 33) + SEND_ALL +
                        packet(0x0D, 0) + packet(0x0E, 1) + packet(0x0F, 2) + SEND_ALL + packet(ACKNOWLEDGE) +
                        COMPLETIONS,
        "bad-lkey": setup() + post_send(SEND, 0x11) + post_send(SEND, 0x21) + SEND_ALL + COMPLETIONS,
        "response-to-send": setup() + post_send(SEND, length=100) + SEND_ALL + packet(0x10, size=100) + COMPLETIONS,
        "response-too-short": setup() + post_send(READ, length=100) + SEND_ALL + packet(0x10, size=99) +
                              packet(0x10, size=101) + packet(0x10, size=100) + COMPLETIONS,
        "beyond-mtu": setup() + RECEIVE + packet(0x04, size=4) + SEND_ALL + COMPLETIONS,
        "write-beyond-mtu": setup() + packet(0x0A, size=4, reth=(0, 0, 257)) + SEND_ALL,
        "window": setup() + bytes([SET_WINDOW, 4]) + post_send(WRITE) * 3 + SEND_ALL + packet(ACKNOWLEDGE) + SEND_ALL +
                  COMPLETIONS,
        "states": setup() + post_send(SEND) + RECEIVE + bytes([MODIFY, 0]) + COMPLETIONS + bytes([MODIFY, 3]) +
                  RECEIVE + packet(0x04) + SEND_ALL + bytes([MODIFY, 1]) + packet(0x04),
        "raw": setup() + bytes([RAW_PACKET, 5]) +
               bytes([0x11, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x11, 0, 0xFF, 0xFF, 0, 0x1F, 0, 0, 1, 0, 0, 0, 0]) + COMPLETIONS,
    }
    for name, script in scripts.items():
        write("queue_pair", name, script)


if __name__ == "__main__":
    wire_seeds()
    pcap_seeds()
    queue_pair_seeds()

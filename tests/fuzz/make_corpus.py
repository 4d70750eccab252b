#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets to corpus/: those of packets from the captured sessions in ../golden,
the others from the messages' layouts.

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
SEND, SEND_IMM, WRITE, WRITE_IMM, READ, COMPARE_SWAP, FETCH_ADD, SEND_INV, LOCAL_INV, BIND = range(10)
# Rows of the opcode table: up to 0x14 the opcode itself.
ATOMIC_ANSWER, SWAP_REQUEST, ADD_REQUEST, SEND_LAST_INV, SEND_ONLY_INV = range(0x12, 0x17)
READ_REQUEST, READ_RESPONSES, ACKNOWLEDGE = 0x0C, range(0x0D, 0x11), 0x11
FULL = {0x00, 0x01, 0x06, 0x07, 0x0D, 0x0E}
HAS_RETH, HAS_AETH = {0x06, 0x0A, 0x0B, 0x0C}, {0x0D, 0x0F, 0x10, 0x11, 0x12}
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


def packet(opcode, difference=0, bits=1, size=100, reth=(0, 0, THREE_PACKETS), aeth=(0x1F, 1), key=0):
    out = bytes([PACKET, opcode, difference & 0xFF, bits])
    if opcode not in (READ_REQUEST, ACKNOWLEDGE, ATOMIC_ANSWER, SWAP_REQUEST, ADD_REQUEST):
        out += bytes([2 if opcode in FULL else size])
    if opcode in HAS_RETH:
        out += struct.pack(">BHH", *reth)
    if opcode in (SWAP_REQUEST, ADD_REQUEST):
        out += struct.pack(">BHHB", *reth, 0)  # key, offset, operand, compare
    if opcode in HAS_AETH:
        out += bytes(aeth)
    if opcode in (SEND_LAST_INV, SEND_ONLY_INV):
        out += bytes([key])
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
        "atomic-responder": setup() + (packet(ADD_REQUEST, reth=(0, 8, 5)) + packet(SWAP_REQUEST, reth=(0, 8, 9)) +
                                       packet(ADD_REQUEST, -1, reth=(0, 8, 5)) + SEND_ALL) * 2,
        "atomic-refused": setup() + packet(ADD_REQUEST, reth=(0, 4, 1)) + SEND_ALL + packet(ADD_REQUEST) + SEND_ALL,
        "atomic-requester": setup() + post_send(FETCH_ADD) + post_send(COMPARE_SWAP) + post_send(WRITE, 3, 8) +
                            SEND_ALL + packet(ATOMIC_ANSWER, -1) + packet(ATOMIC_ANSWER) + SEND_ALL +
                            packet(ACKNOWLEDGE) + COMPLETIONS,
        "atomic-answer-to-read": setup() + post_send(READ) + SEND_ALL + packet(ATOMIC_ANSWER) + COMPLETIONS,
        "invalidate": setup() + RECEIVE * 2 + packet(SEND_ONLY_INV) + packet(SEND_ONLY_INV) + SEND_ALL + COMPLETIONS,
        "local": setup() + post_send(SEND_INV) + post_send(LOCAL_INV) + SEND_ALL + packet(ACKNOWLEDGE) + SEND_ALL +
                 post_send(BIND) + SEND_ALL + COMPLETIONS,
        "drain": setup() + post_send(WRITE) + bytes([TRANSMIT, 0, 0]) + bytes([MODIFY, 0xF0]) + post_send(SEND) +
                 SEND_ALL + packet(ACKNOWLEDGE) + SEND_ALL + bytes([MODIFY, 0xF1]) + SEND_ALL + packet(ACKNOWLEDGE) +
                 COMPLETIONS,
        "raw": setup() + bytes([RAW_PACKET, 5]) +
               bytes([0x11, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x11, 0, 0xFF, 0xFF, 0, 0x1F, 0, 0, 1, 0, 0, 0, 0]) + COMPLETIONS,
    }
    for name, script in scripts.items():
        write("queue_pair", name, script)


# unreliable.cc: enum Command, and places in the opcode table
U_PACKET, U_RAW, U_SEND, U_RECV, U_TRANSMIT, U_POLL, U_MODIFY, U_TOGGLE = range(8)
TABLE = list(range(0x00, 0x15)) + [0x16, 0x17] + list(range(0x20, 0x2C)) + [0x64, 0x65]
UD, SHARED, IPV6 = 1, 2, 4
MTU_BYTES = 1  # the place of the MTU among the payload sizes


def unreliable_packet(opcode, difference=0, bits=0, size=100, reth=(0, 0)):
    place = TABLE.index(opcode)
    out = bytes([U_PACKET, place, difference & 0xFF, bits, size])
    return out + (struct.pack(">HH", *reth) if opcode in (0x06, 0x0A, 0x0B, 0x0C, 0x26, 0x2A, 0x2B) else b"")


def unreliable_seeds():
    def script(flags, *steps):
        return bytes([flags, 0xFF, 0xFF, 0xF8]) + b"".join(steps)
    def post(opcode, bits=1, length=700):
        return struct.pack(">BBBH", U_SEND, opcode, bits, length)
    receive, poll = bytes([U_RECV, 63]), bytes([U_POLL])
    packet, full = unreliable_packet, MTU_BYTES
    send_all, refuse, fault = (bytes([U_TRANSMIT, 7, socket]) for socket in range(3))
    to_rts, to_sqd, to_err, to_reset = (bytes([U_MODIFY, state]) for state in range(4))
    message = packet(0x20, size=full) + packet(0x21, size=full) + packet(0x23)
    seeds = {
        "send": script(0, receive, message, poll, post(SEND), post(SEND_IMM), send_all, poll),
        "write": script(0, receive, packet(0x26, size=full, reth=(0, 356)), packet(0x29), poll, post(WRITE), send_all),
        "write-only": script(0, receive, packet(0x2A, reth=(0, 100)), packet(0x2B, reth=(1900, 100)),
                             packet(0x2B, bits=4, reth=(0, 100)), poll),
        "gap": script(0, receive, packet(0x20, size=full), packet(0x21, 1, size=full), packet(0x22), message, poll),
        "no-receive": script(SHARED, message, receive, message, poll),
        "shared-too-long": script(SHARED, bytes([U_RECV, 3]), receive, message, poll, packet(0x24), poll),
        "shared-broken": script(SHARED, receive, packet(0x20, size=full), to_reset, receive, message, poll),
        "region-goes": script(0, packet(0x26, size=full, reth=(0, 512)), bytes([U_TOGGLE]), packet(0x28, size=full)),
        "refused": script(0, post(SEND) * 3, refuse, refuse, poll, send_all, poll),
        "fault": script(0, post(SEND) * 3, fault, poll, post(SEND), to_rts, post(SEND), send_all, poll),
        "bad-lkey": script(0, post(SEND), post(SEND, 0x11), post(SEND), send_all, poll, to_rts),
        "drain": script(0, post(SEND) * 2, bytes([U_TRANSMIT, 0, 0]), to_sqd, send_all, poll, to_rts, send_all, poll),
        "error": script(0, receive, post(SEND), bytes([U_TRANSMIT, 0, 0]), to_err, receive, post(SEND), poll, to_reset),
        "bad-receive": script(0, bytes([U_RECV, 127]), receive, post(SEND), message, poll),
        "datagrams": script(UD, receive * 2, packet(0x64), packet(0x65, bits=1), poll, post(SEND, 3, 256),
                            post(SEND_IMM, 7, 40), post(SEND, 1, 257), post(SEND, 0x41, 8), send_all, poll),
        "datagrams-shared": script(UD | SHARED | IPV6, bytes([U_RECV, 1]), receive, packet(0x64), packet(0x64), poll),
        "datagrams-bad": script(UD | IPV6, receive, packet(0x64, bits=2), packet(0x64, size=3), packet(0x24), poll),
        "raw": script(UD, receive, bytes([U_RAW, 6]),
                      bytes([0x64, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x11, 0, 0, 0, 0]),
                      bytes([0, 0, 0, 0x77, 0, 0, 0, 0x22, 0, 0, 0, 0]), poll),
    }
    for name, seed in seeds.items():
        write("unreliable", name, seed)


# bootstrap.cc, exec.cc and perf.cc: the first byte says how the stream is cut, or which group it is
BYTES, LARGE_PIECES = b"\0", b"\x0b"


def be(format, *values):
    return struct.pack(">" + format, *values)


def prefixed(data):
    return be("I", len(data)) + data


def frame(kind, body=b"", magic=0xBEE1, length=None):
    return be("HBBI", magic, kind, 0, len(body) if length is None else length) + body


def mapped(host):
    """10.0.0.HOST as an IPv6 address."""
    return bytes(10) + bytes([255, 255, 10, 0, 0, host])


def entry(endpoints, host=b"node-a"):
    addresses = b"".join(prefixed(mapped(i)) + be("H", 40000 + i) for i in range(endpoints))
    return (be("Q", 0xFEED) + prefixed(bytes(range(16))) + prefixed(bytes(range(16, 32))) + be("I", 4711) +
            prefixed(host) + prefixed(b"boot-id/4026531840") + bytes([endpoints]) + addresses)


def bootstrap_seeds():
    hello = frame(1, be("I", 1) + prefixed(b"default") + be("II", 4, 2) + prefixed(b"pid 4711 on node-a"))
    seeds = {
        "store-client": BYTES + hello + frame(2, prefixed(b"beeline/default/0") + prefixed(entry(1))) +
                        frame(3, prefixed(b"beeline/default/0")),
        "store-server": LARGE_PIECES + frame(4, b"\0" + prefixed(b"")) + frame(6, prefixed(entry(2))) +
                        frame(5, b"\1" + prefixed(b"group 'other' is meeting there")) +
                        frame(7, prefixed(b"rank 3 left")),
        "door": b"\2" + frame(8, be("Q", 0xFEED) + prefixed(bytes(16)) + be("II", 3, 4712) + prefixed(b"node-b")) +
                frame(3),
        "endpoints": b"\3" + frame(9, (prefixed(bytes(16)) + be("H", 29500)) * 2),
        "entry": LARGE_PIECES + entry(3),
        "entry-odd": LARGE_PIECES + entry(1, b"node\x1b[2J\n"),
        "entry-too-many": LARGE_PIECES + entry(33),
        "contributions": b"\4" + frame(1, b"mine") + frame(1, b"mine too") + frame(3),
        "too-many-contributions": LARGE_PIECES + frame(1, b"a") * 4,
        "failure": b"\1" + frame(2, b"\7" + prefixed(b"all_reduce\tdid not end in time")) + frame(3),
        "failure-bad-code": b"\1" + frame(2, b"\x7f" + prefixed(b"?")),
        "goodbye-and-more": b"\5" + frame(3) + frame(1, b"late"),
        "other-magic": BYTES + frame(1, b"x", magic=0x4745),
        "too-long": BYTES + frame(1, b"x", length=1025),
        "claims-all": BYTES + frame(1, b"x", length=0xFFFFFFFF),
        "cut": BYTES + frame(1, b"x", length=1000),
    }
    for name, seed in seeds.items():
        write("bootstrap", name, seed)


def greeting(size, rank, mtu=1024, communicator=0x0BEE11E5):
    header = be("9I", 0x42454558, 1, 64, 4, 4, 256 * 1024, communicator, size, rank)
    return header + b"".join(be("4I", 0x1000 + i, 0xABCDEF, mtu, 16) + mapped(i + 1) for i in range(size))


def exec_message(kind, operation=0, dtype=0, redop=0, root=0, count=1000):
    return be("4BiQQIIQIIII", kind, operation, dtype, redop, root, 7, count, 0x0BEE11E5, 0x1234, 0x7F0000001000,
              4096, 1, 2, 3).ljust(64, b"\0")


def exec_seeds():
    def group(size, rank):
        return bytes([size - 1 + 4 * rank])
    seeds = {
        "greeting-1": group(1, 0) + greeting(1, 0),
        "greeting-2": group(2, 1) + greeting(2, 1),
        "greeting-4": group(4, 2) + greeting(4, 2, mtu=4096),
        "greeting-bad-mtu": group(2, 1) + greeting(2, 1, mtu=1500),
        "greeting-other-group": group(2, 1) + greeting(2, 1, communicator=1),
        "greeting-other-rank": group(4, 2) + greeting(4, 1),
        "greeting-too-long": group(2, 0) + greeting(2, 0) + b"\0",
        "probe": group(2, 0) + exec_message(1, 4, 4),
        "calls": group(4, 1) + b"".join(exec_message(2, i, i, i % 3, 3) for i in range(5)),
        "advert": group(2, 1) + exec_message(3, 1, 1, 2),
        "goodbye": group(2, 1) + exec_message(4, 4, 4),
        "bad-root": group(2, 0) + exec_message(2, 3, 4, root=-1),
        "huge-count": group(4, 3) + exec_message(2, 2, 3, count=2**61) + exec_message(2, 1, 3, count=2**58),
        "bad-enumerators": group(2, 0) + exec_message(5) + exec_message(2, 5) + exec_message(2, 0, 5) +
                           exec_message(2, 0, 0, 3),
    }
    for name, seed in seeds.items():
        write("exec", name, seed)


# port.cc: enum Command
DATAGRAM, HAND_OVER, ANSWER, BEGIN, PROBE, PORT_TIME, CUT, TRAIN = range(8)
OUR_NONCE = 0x0102030405060708


def with_length(command, data):
    return bytes([command, len(data)]) + data


def probe(index, magic=0xBEE1, version=1):
    return with_length(DATAGRAM, be("BBHBBHQ", 0xFF, index, magic, version, 9, 0, OUR_NONCE))


def hand_over(kind, index=0, slot=9, payload=b"", flags=0, magic=0x42656548):
    header = be("IBBBBHB5x", magic, 1, kind, flags, index, 50000, slot)
    return with_length(HAND_OVER, header + bytes(range(32)) + payload)


def answers(slots, first=0):
    return b"".join(bytes([ANSWER, first + i, slot]) for i, slot in enumerate(slots))


def train(first_words, likely_words, packets, words):
    data = b"".join(be("BBHII", 4, 0x40, 0xFFFF, 9 << 16, 0xFFFFFE + i & 0xFFFFFF) + bytes(4 * words - 12) for i in range(packets))
    return bytes([TRAIN, first_words, likely_words]) + be("H", len(data)) + data


def cut(segment_bytes, length):
    return be("BHH", CUT, segment_bytes, length) + bytes(length)


def port_seeds():
    ask, late = bytes([BEGIN, PROBE]), bytes([PORT_TIME, 28])
    packet = bytes([4, 0x40, 0xFF, 0xFF, 0, 9, 0, 1, 0, 0, 0, 0]) + bytes(8)
    seeds = {
        "probe": probe(0) + probe(255),
        "not-probes": probe(0, magic=0xBEE2) + probe(0, version=2) + with_length(DATAGRAM, packet) +
                      bytes([DATAGRAM, 0]),
        "packets": hand_over(1, payload=packet) + hand_over(1, payload=packet, flags=1),
        "not-messages": hand_over(3) + hand_over(1, flags=4) + hand_over(1, magic=0) + with_length(HAND_OVER, b"BeeH"),
        "answers": ask + b"".join(hand_over(2, i, slot, be("Q", OUR_NONCE)) for i, slot in enumerate((3, 5, 3))) +
                   hand_over(2, 3, 5, be("Q", OUR_NONCE)),
        "answer-to-another": ask + hand_over(2, 0, 3, be("Q", 99)) + hand_over(2, 200, 3, be("Q", OUR_NONCE)) +
                             hand_over(2, 0, 3, b"short"),
        "alone": ask + answers((7, 7, 7, 7)),
        "more-than-four": ask + answers((1, 2, 3, 4)) + bytes([PROBE]) + answers((5, 6, 1, 1), 4),
        "late": ask + answers((1, 2)) + late + answers((3,), 2) + late + ask,
        "never-begun": bytes([PROBE]) + answers((1, 2)) + late,
        "cuts": cut(0, 100) + cut(1, 9) + cut(50, 100) + cut(50, 101) + cut(200, 100) + cut(9, 0),
        "trains": train(8, 0, 5, 8) + train(8, 8, 5, 8) + train(4, 9, 3, 4) + train(0, 8, 5, 8) + train(200, 0, 1, 200),
        "many": ask + b"".join(answers(range(first, 2 * first or 4), first) + bytes([PROBE])
                               for first in (0, 4, 8, 16, 32, 64, 128)),
    }
    for name, seed in seeds.items():
        write("port", name, seed)


# local.cc: enum Command
LOCAL_MESSAGE, SIDE, SLOT, PAYLOAD, OWN_SLOT, LOCAL_SEND, LOCAL_RECV, STEP, LOCAL_TIME = range(9)
NO_BYTES, IN_HEADER, IN_SLOT, BY_SOURCE, BY_OFFER = range(5)
FIRST, LAST = 1, 2


def local_message(kind, verdict=0, version=1):
    return bytes([LOCAL_MESSAGE]) + be("IBBB", 0x4265654C, version, kind, verdict).ljust(64, b"\x07")


def side(field, value):
    return bytes([SIDE]) + be("I", value) + bytes([field])


def slot(number, opcode, carry, length, flags=FIRST | LAST, rkey=2, turn=0, body=b""):
    return (bytes([SLOT, number, opcode, flags, carry, 7, 0]) + be("H", length) + bytes([0]) + be("H", 0) +
            bytes([rkey]) + body.ljust(32, b"\x55") + bytes([turn]))


def local_send(opcode, length=100):
    return bytes([LOCAL_SEND, opcode]) + (be("H", length) if opcode not in (COMPARE_SWAP, FETCH_ADD, LOCAL_INV) else b"")


def local_seeds():
    step, receive = bytes([STEP]), bytes([LOCAL_RECV, 1]) + be("H", 9000)
    sources = bytes([PAYLOAD, 1, 0, 16]) + struct.pack("<QQ", 0x1001, 20000)
    seeds = {
        "messages": b"".join(local_message(kind, 1 if kind == 3 else 0) for kind in range(1, 6)) +
                    local_message(1, version=2) + local_message(3) + local_message(2, 1),
        "arrivals": receive * 3 + slot(0, SEND, IN_HEADER, 20) + slot(1, WRITE, IN_SLOT, 4096) +
                    slot(2, SEND_IMM, NO_BYTES, 0) + step * 2,
        "too-long": receive + slot(0, SEND, IN_HEADER, 60) + step + slot(0, WRITE, IN_SLOT, 5000) + step,
        "by-source": sources + slot(0, WRITE, BY_SOURCE, 20000) + step * 2,
        "by-source-short": receive + sources + slot(0, SEND, BY_SOURCE, 30000) + step * 2,
        "reads": slot(0, READ, IN_SLOT, 100) + slot(1, READ, BY_OFFER, 40000) + step + side(2, 2) + step,
        "atomics": slot(0, FETCH_ADD, NO_BYTES, 8) + slot(1, COMPARE_SWAP, NO_BYTES, 8) + step,
        "no-operations": slot(0, BIND, NO_BYTES, 0) + step + slot(0, 200, 9, 0) + step,
        "not-ready": slot(0, SEND, IN_HEADER, 8) + step + bytes([LOCAL_TIME, 30]) + step + receive + step,
        "answered": local_send(WRITE) + local_send(READ, 200) + step + side(0, 2 << 8) + step,
        "refused": local_send(WRITE) * 2 + side(0, 1 << 8 | 2) + step,
        "answers-too-much": local_send(SEND) + side(0, 9 << 8) + step,
        "offers": local_send(READ, 40000) + bytes([PAYLOAD, 0, 0, 16]) + struct.pack("<QQ", 0x1001, 40000) +
                  side(1, 1) + step + side(0, 1 << 8) + step,
        "offers-nothing": local_send(READ, 40000) + side(0, 1 << 8) + step,
        "closes": local_send(WRITE) + side(5, 1) + step + local_send(SEND),
        "silent": local_send(WRITE) + bytes([LOCAL_TIME, 39]) + step + bytes([LOCAL_TIME, 39]) + step,
        "scribbles-on-ours": bytes([OWN_SLOT]) + slot(0, READ, BY_OFFER, 77)[1:] + local_send(FETCH_ADD) +
                             side(0, 1 << 8) + step,
    }
    for name, seed in seeds.items():
        write("local", name, seed)


def perf_message(kind, payload=b"", length=None):
    return be("IHH", len(payload) if length is None else length, kind, 0) + payload


def perf_hello(test=b"write_bw", size=65536, iterations=1000, duration=0, queue_pairs=2, depth=128, flags=(0, 0, 1),
               version=1):
    return perf_message(1, be("QI", 0x6265656C50455246, version) + prefixed(test) +
                        be("QQqII3I", size, iterations, duration, queue_pairs, depth, *flags))


def perf_seeds():
    endpoint = mapped(7) + be("II", 4096, 16)
    queue_pair = be("IIIQQ", 0x11, 0xABCDEF, 0x1234, 0x7F0000001000, 0x7F0000002000)
    start, finished, bye, alive = (perf_message(kind) for kind in (5, 6, 8, 9))
    seeds = {
        "client": BYTES + perf_hello() + perf_message(2, endpoint + be("I", 2) + queue_pair * 2) +
                  perf_message(3, be("I", 1)) + perf_message(4, be("QQQq", 65536, 0, 1000, 0)) + bye,
        "server": LARGE_PIECES + alive + perf_hello(b"read_lat", 2, 0, 10**9, 1, 1, (1, 0, 0)) + start +
                  perf_message(6, be("QqI2Q", 2000, 10**9, 2, 1000, 1000)) + alive +
                  perf_message(7, be("QQ", 9, 1) + prefixed(b"byte 3")),
        "all-sizes": b"\3" + perf_hello(b"send_bw", 2**23, flags=(1, 1, 0)),
        "largest": b"\3" + perf_hello(b"read_bw", 2**30, queue_pairs=4, depth=16384) +
                   perf_hello(queue_pairs=1024, depth=16384),
        "bad-plans": b"\4" + perf_hello(size=0) + perf_hello(queue_pairs=0) + perf_hello(depth=0) +
                     perf_hello(iterations=0) + perf_hello(b"nothing") + perf_hello(version=2) +
                     perf_hello(flags=(2, 0, 0)) + perf_hello(size=2**30, queue_pairs=1024),
        "failure": BYTES + perf_message(10, prefixed(b"no memory\n")),
        "text": b"\2" + perf_message(7, be("QQ", 9, 1) + prefixed(b"\x1b[2J\xff")) +
                perf_message(99, prefixed(b"what\x7f")),
        "counts-lie": b"\2" + perf_message(2, endpoint + be("I", 0xFFFFFFFF) + queue_pair) +
                      perf_message(6, be("QqI", 1, 1, 0x20000001)) + perf_message(6, be("QqI", 1, -1, 0)),
        "too-long": BYTES + start + perf_message(5, length=65537),
        "cut": BYTES + finished + perf_message(5, b"x", length=65536),
        "not-perf": LARGE_PIECES + b"GET / HTTP/1.1\r\n\r\n",
    }
    for name, seed in seeds.items():
        write("perf", name, seed)


# cm.cc: enum Command
CM_RAW, CM_MESSAGE, CM_CONNECT, CM_RESOLVE, CM_ANSWER, CM_REFUSE, CM_LEAVE, CM_TIME = range(8)
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP = range(9)


def cm_message(kind, body=b"", about=0):
    """Ids: ours is what connect or a request of the peer made, by number; the peer's is 9."""
    return bytes([CM_MESSAGE, kind]) + (be("I", 9) + body).ljust(60, b"\0") + bytes([about]) * 2


def cm_seeds():
    connect, answer, leave, late = bytes([CM_CONNECT, 5, 0]), bytes([CM_ANSWER, 0]), bytes([CM_LEAVE, 0, 0]), bytes([CM_TIME, 35])
    seeds = {
        "active": connect + cm_message(REP) + answer + cm_message(REP) + leave + cm_message(DREP) + late,
        "passive": cm_message(REQ) + answer + cm_message(REQ) + cm_message(RTU) + cm_message(DREQ) + leave + cm_message(DREQ),
        "rejected": connect + cm_message(REJ) + cm_message(REQ) + bytes([CM_REFUSE, 3]) + b"why" + bytes([0]),
        "thinking": connect + cm_message(MRA, be("IBB", 0, 0, 0xC0)) + late + cm_message(REQ) + cm_message(REQ) + late * 8,
        "services": bytes([CM_RESOLVE, 1, 2]) + b"ab" + cm_message(SIDR_REP) + cm_message(SIDR_REQ) + answer + late,
        "crossing": cm_message(REQ) + answer + cm_message(RTU) + leave + cm_message(DREQ) + cm_message(DREP) + late,
        "nobody": connect * 20 + late * 12,
    }
    for index, frame in enumerate(f for f in frames_of(GOLDEN / "rxe-cm_write.pcap") if f[ETHERNET_IPV4_UDP] == 0x64):
        seeds[f"captured-{index}"] = bytes([CM_RAW]) + frame[ETHERNET_IPV4_UDP + 20:ETHERNET_IPV4_UDP + 276]
    for name, seed in seeds.items():
        write("cm", name, seed)


if __name__ == "__main__":
    cm_seeds()
    wire_seeds()
    pcap_seeds()
    queue_pair_seeds()
    unreliable_seeds()
    bootstrap_seeds()
    exec_seeds()
    port_seeds()
    local_seeds()
    perf_seeds()

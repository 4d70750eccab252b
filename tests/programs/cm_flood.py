"""Floods an address with messages of the connection manager, as anybody on the network can: requests that nobody
goes on with, messages of no connection, and such that say anything.

    cm_flood.py ADDRESS PORT COUNT bogus|half_open [SEED]"""

import random
import socket
import struct
import sys
import zlib

ROCE_PORT = 4791
PORT_SPACE_TCP = 0x0106  # of the service id (RDMA CM, annex A11 of the InfiniBand specification)
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP = range(0x10, 0x1A)


def frame(source, destination, source_port, mad):
    """UDP payload: BTH and DETH of queue pair 1, the MAD, and the ICRC (annex A17: variant fields as ones)."""
    packet = struct.pack(">BBHB3sI", 0x64, 0, 0xFFFF, 0, b"\0\0\1", 0) + struct.pack(">II", 0x80010000, 1) + mad
    udp_bytes = 8 + len(packet) + 4
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0xFF, 20 + udp_bytes, 0, 0x4000, 0xFF, 17, 0xFFFF,
                     socket.inet_aton(source), socket.inet_aton(destination))
    udp = struct.pack(">HHHH", source_port, ROCE_PORT, udp_bytes, 0xFFFF)
    masked = packet[:4] + b"\xff" + packet[5:]
    return packet + struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))


def mad_of(attribute, message, rng):
    header = struct.pack(">BBBBHHQHHI", 1, 7, 2, 3, 0, 0, rng.getrandbits(64), attribute, 0, 0)
    return (header + message).ljust(256, b"\0")


def mapped(address):
    return b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address)


def request(source, destination, port, rng):
    """One that a server may well accept."""
    body = bytearray(232)
    struct.pack_into(">I", body, 0, rng.getrandbits(32))
    struct.pack_into(">Q", body, 8, PORT_SPACE_TCP << 16 | port)
    struct.pack_into(">Q", body, 16, rng.getrandbits(64))
    body[32:35] = rng.randbytes(3)
    body[35] = body[39] = 1
    body[43] = 20 << 3  # response times: 4 s
    body[44:47] = rng.randbytes(3)
    body[47] = 20 << 3 | 7
    struct.pack_into(">H", body, 48, 0xFFFF)
    body[50] = 3 << 4 | 7
    body[51] = 15 << 4
    struct.pack_into(">HH", body, 52, 0xFFFF, 0xFFFF)
    body[56:72], body[72:88] = mapped(source), mapped(destination)
    body[93] = 64
    body[95] = 18 << 3
    struct.pack_into(">BBH", body, 140, 0, 0x40, rng.randrange(1024, 65536))
    body[144:160], body[160:176] = b"\0" * 12 + socket.inet_aton(source), b"\0" * 12 + socket.inet_aton(destination)
    return mad_of(REQ, bytes(body), rng)


def bogus(source, destination, port, rng):
    kind = rng.randrange(4)
    if kind == 0:  # of no connection
        return mad_of(rng.choice([MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REP, LAP]), rng.randbytes(232), rng)
    if kind == 1:  # for nobody
        return request(source, destination, (port + rng.randrange(1, 60000)) % 65536, rng)
    if kind == 2:  # anything
        return rng.randbytes(256)
    spoilt = bytearray(request(source, destination, port, rng))
    spoilt[rng.randrange(24)] ^= 1 << rng.randrange(8)  # in its header
    spoilt[24 + 8 + rng.randrange(8)] ^= 1 << rng.randrange(8)  # for another service, whatever it says
    return bytes(spoilt)


def main():
    address, port, count, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rng = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    make = {"bogus": bogus, "half_open": request}[what]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)  # DF, and identification 0
        wire.bind((address, 0))
        source_port = wire.getsockname()[1]
        for _ in range(count):
            wire.sendto(frame(address, address, source_port, make(address, address, port, rng)), (address, ROCE_PORT))


if __name__ == "__main__":
    main()

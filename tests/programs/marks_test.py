"""The traffic class that a program asks for is the one of its packets: perftest's --tclass, in a network namespace
of the test's own, where whoever made it may capture."""

import os
import re
import shutil
import sys
import unittest

from place import Namespace, Program, free_port, on_card

# Says each pair of ToS and TTL once, as it comes, of what has a payload.
CAPTURE = """
import socket, struct
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
wire.bind(("lo", 0))
print("ready", flush=True)
seen = set()
while True:
    packet = wire.recv(65536)
    if packet[9] != 17 or struct.unpack(">H", packet[22:24])[0] != 4791:
        continue
    opcode = packet[28]
    if (opcode, packet[1], packet[8]) not in seen:
        seen.add((opcode, packet[1], packet[8]))
        print(f"opcode {opcode:#04x} class {packet[1]} ttl {packet[8]}", flush=True)
"""
SEND_ONLY = {"RC": 0x04, "UC": 0x24, "UD": 0x64}  # of BTH (IBTA vol. 1, 9.2.1)


class Marks(unittest.TestCase):
    def setUp(self):
        for tool in ("ib_send_lat", "unshare", "nsenter", "ip"):
            self.assertIsNotNone(shutil.which(tool), f"{tool}: scripts/setup --for-tests installs it")
        self.space = Namespace()
        self.addCleanup(self.space.close)

    def captured(self, service, *options):
        capture = Program([*self.space.prefix, sys.executable, "-c", CAPTURE])
        self.addCleanup(capture.kill)
        capture.await_text("ready")
        port = free_port()
        words = ["ib_send_lat", "-F", "-c", service, "-n", "20", "-p", port, *options]
        environment = {**os.environ, "BEELINE_LANE": "wire"}
        server = Program([*self.space.prefix, *on_card(*words)], environment)
        self.addCleanup(server.kill)
        server.await_listening(port)
        client = Program([*self.space.prefix, *on_card(*words, "127.0.0.1")], environment)
        self.addCleanup(client.kill)
        self.assertEqual((client.wait(), server.wait()), (0, 0), client.output() + server.output())
        capture.await_text(f"opcode {SEND_ONLY[service]:#04x}")
        capture.kill()
        found = re.findall(r"opcode (0x\w+) class (\d+)", capture.output())
        # Not what processes of one host say to each other on that port.
        return {int(marked) for opcode, marked in found if int(opcode, 16) >> 5 == SEND_ONLY[service] >> 5}

    def test_every_packet_of_a_connection_has_the_class(self):
        if not self.space.made:
            return
        for service in SEND_ONLY:
            with self.subTest(service=service):
                self.assertEqual(self.captured(service, "--tclass", "104"), {104}, "acknowledgements, too")
                self.assertEqual(self.captured(service), {0})


if __name__ == "__main__":
    unittest.main(verbosity=2)

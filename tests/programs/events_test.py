"""Events of ports, as ibv_asyncwatch prints them while links and addresses change, in a network namespace of the
test's own."""

import shutil
import unittest

from place import Namespace


class Events(unittest.TestCase):
    def setUp(self):
        for tool in ("ibv_asyncwatch", "unshare", "nsenter", "ip"):
            self.assertIsNotNone(shutil.which(tool), f"{tool}: scripts/setup --for-tests installs it")
        self.space = Namespace()
        self.addCleanup(self.space.close)
        if not self.space.made:
            return
        self.space.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        for end in ("near", "far"):
            # No address that comes when it pleases.
            self.space.ip("link", "set", end, "addrgenmode", "none", "up")
        self.space.ip("addr", "add", "10.97.0.1/24", "dev", "near")

    def watch(self):
        # Line by line: its output is a file here.
        program = self.space.program("stdbuf", "-oL", "ibv_asyncwatch", "-d", "bee0")
        self.addCleanup(program.kill)
        program.await_text("async event FD")
        return program

    def test_links_and_addresses(self):
        if not self.space.made:
            return
        program = self.watch()
        seen = []

        def expect(event, *command):
            self.space.ip(*command)
            seen.append(event)
            program.await_text(event, seen.count(event))
            found = [line.split("event_type ")[1].split(" (")[0] for line in program.output().splitlines()
                     if "event_type" in line]
            self.assertEqual(found, seen, program.output())

        expect("IBV_EVENT_GID_CHANGE", "addr", "add", "10.97.0.2/24", "dev", "near")
        expect("IBV_EVENT_PORT_ERR", "link", "set", "near", "down")
        expect("IBV_EVENT_PORT_ACTIVE", "link", "set", "near", "up")
        expect("IBV_EVENT_PORT_ERR", "link", "set", "far", "down")
        expect("IBV_EVENT_PORT_ACTIVE", "link", "set", "far", "up")
        expect("IBV_EVENT_GID_CHANGE", "addr", "del", "10.97.0.2/24", "dev", "near")
        expect("IBV_EVENT_GID_CHANGE", "addr", "add", "fd97::1/64", "dev", "near", "nodad")
        expect("IBV_EVENT_GID_CHANGE", "addr", "del", "fd97::1/64", "dev", "near")
        self.assertIn("port 1", program.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)

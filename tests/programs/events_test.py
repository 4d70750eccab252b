"""Events of ports, as ibv_asyncwatch prints them while links and addresses change, in a network namespace of the
test's own; and that a datagram's receiver is told what the sender's address handle said."""

import os
import shutil
import subprocess
import time
import unittest

from place import STEP_S, Program, on_card, run


class Namespace:
    """A network namespace with a cable to itself, as root or as anybody whom the kernel lets."""

    def __init__(self):
        own_user = [] if os.geteuid() == 0 else ["-r"]
        self.holder = subprocess.Popen(["unshare", *own_user, "-n", "sh", "-c", "echo ready; exec sleep 3600"],
                                       stdout=subprocess.PIPE, text=True)
        self.made = self.holder.stdout.readline() == "ready\n"
        user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        self.prefix = ["nsenter", "-t", str(self.holder.pid), *user, "-n"]

    def ip(self, *words):
        done = run(*self.prefix, "ip", *words)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class Events(unittest.TestCase):
    def setUp(self):
        for tool in ("ibv_asyncwatch", "unshare", "nsenter", "ip"):
            self.assertIsNotNone(shutil.which(tool), f"{tool}: scripts/setup --for-tests installs it")
        self.space = Namespace()
        self.addCleanup(self.space.close)
        if not self.space.made:
            self.skipTest("no network namespace can be made here")
        self.space.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        for end in ("near", "far"):
            # No address that comes when it pleases.
            self.space.ip("link", "set", end, "addrgenmode", "none", "up")
        self.space.ip("addr", "add", "10.97.0.1/24", "dev", "near")

    def watch(self):
        # Line by line: its output is a file here.
        program = Program([*self.space.prefix, *on_card("stdbuf", "-oL", "ibv_asyncwatch", "-d", "bee0")])
        self.addCleanup(program.kill)
        self.await_text(program, "async event FD")
        return program

    def await_text(self, program, text, times=1):
        end = time.monotonic() + STEP_S
        while program.output().count(text) < times:
            self.assertIsNone(program.process.poll(), program.output())
            self.assertLess(time.monotonic(), end, f"{text!r} did not come {times} times:\n{program.output()}")
            time.sleep(0.02)

    def test_links_and_addresses(self):
        program = self.watch()
        seen = []

        def expect(event, *command):
            self.space.ip(*command)
            seen.append(event)
            self.await_text(program, event, seen.count(event))
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

"""Two hosts (network namespaces with a cable between them), one fault at a time: exactly the
check that is about the fault raises its alarm."""

import json
import os
import pathlib
import re
import subprocess
import time
import unittest

import namespace

PROGRAM = pathlib.Path(os.environ.get("BEELINE_BUILD", "build")) / "bin/beeline"
THERE = "10.77.0.2"
LIMIT_S = 240


def ip(*words, there=None):
    inside = ["nsenter", "--target", str(there), "--net"] if there else []
    subprocess.run([*inside, "ip", *words], check=True)


def drop(rule):
    text = f"table inet beeline_test {{ chain in {{ type filter hook input priority 0; {rule} drop; }}; }}"
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


class Peer(unittest.TestCase):
    def setUp(self):
        # The other host is a process in a namespace of its own.
        self.other = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(self.end, self.other)
        self.assertEqual(self.other.stdout.readline(), "ready\n")
        ip("link", "add", "rail0", "type", "veth", "peer", "name", "rail0", "netns", str(self.other.pid))
        self.addCleanup(subprocess.run, ["ip", "link", "del", "rail0"], check=False)
        self.addCleanup(namespace.drop_nothing)
        ip("link", "set", "lo", "up", there=self.other.pid)
        for there, address in ((None, "10.77.0.1"), (self.other.pid, THERE)):
            ip("addr", "add", f"{address}/24", "dev", "rail0", there=there)
            ip("link", "set", "rail0", "up", there=there)

        for there in (None, self.other.pid):
            self.wait_for_carrier(there)

    def wait_for_carrier(self, there):
        inside = ["nsenter", "--target", str(there), "--net"] if there else []
        for _ in range(300):
            shown = subprocess.run([*inside, "ip", "link", "show", "rail0"], capture_output=True, text=True, check=True)
            if "state UP" in shown.stdout:
                return
            time.sleep(0.1)
        self.fail(shown.stdout)

    def end(self, process):
        process.kill()
        process.wait()
        process.stdout.close()

    def examine(self, host=THERE):
        """The alarms, and the whole report."""
        listener = subprocess.Popen(
            ["nsenter", "--target", str(self.other.pid), "--net", str(PROGRAM), "doctor", "--listen"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, listener)
        self.assertRegex(listener.stdout.readline(), "listening on TCP port 18791")
        done = subprocess.run(
            [str(PROGRAM), "doctor", "--json", "--peer", host], capture_output=True, text=True, timeout=LIMIT_S
        )
        self.end(listener)
        self.assertTrue(done.stdout, done.stderr)
        checks = json.loads(done.stdout)["checks"]
        alarms = {c["id"] for c in checks if c["status"] in ("failure", "warning")}
        self.assertEqual(done.returncode == 0, not alarms, done.stdout)
        self.assertEqual({c["group"] for c in checks}, {f"peer {host}"})
        return alarms, {c["id"]: c for c in checks}, done.stdout

    def test_a_healthy_pair(self):
        alarms, checks, text = self.examine()
        self.assertEqual(alarms, set(), text)
        for name in ("reach", "arrival", "mtu", "mtu_probe", "source_ports", "rc_ping"):
            self.assertEqual(checks[f"peer.{name}"]["status"], "ok", text)

    def test_different_mtus(self):
        ip("link", "set", "rail0", "mtu", "9000")
        alarms, checks, text = self.examine()
        self.assertEqual(alarms, {"peer.mtu"}, text)
        self.assertIn("9000", checks["peer.mtu"]["evidence"])

    def test_a_black_hole(self):
        drop("meta length > 1400 udp dport != 4791")
        alarms, checks, text = self.examine()
        self.assertEqual(alarms, {"peer.mtu_probe"}, text)
        self.assertIn("black hole", checks["peer.mtu_probe"]["cause"])
        self.assertIn("1372 back", checks["peer.mtu_probe"]["evidence"])

    def test_one_bad_source_port(self):
        drop("udp dport 49155")  # the way back of the flow from 49155
        alarms, checks, text = self.examine()
        self.assertEqual(alarms, {"peer.source_ports"}, text)
        self.assertTrue(re.search(r"lost: 49155$", checks["peer.source_ports"]["evidence"]), text)

    def test_udp_blocked(self):
        drop("meta l4proto udp")
        alarms, checks, text = self.examine()
        self.assertEqual(alarms, {"peer.reach", "peer.rc_ping"}, text)
        self.assertIn("0000:0000:0000:0000:0000:ffff:0a4d:0002", checks["peer.rc_ping"]["cause"])

    def test_only_roce_blocked(self):
        drop("udp dport 4791")
        alarms, _, text = self.examine()
        self.assertEqual(alarms, {"peer.rc_ping"}, text)

    def test_no_family_in_common(self):
        # They talk over link-local addresses, which are no way for RoCE.
        ip("addr", "flush", "dev", "rail0", "scope", "global", there=self.other.pid)
        ip("addr", "add", "fd77::2/64", "dev", "rail0", "nodad", there=self.other.pid)
        ip("addr", "add", "fe80::77/64", "dev", "rail0", "nodad", there=self.other.pid)
        ip("addr", "add", "fe80::78/64", "dev", "rail0", "nodad")
        alarms, _, text = self.examine("fe80::77%rail0")
        self.assertEqual(alarms, {"peer.gid_family"}, text)


if __name__ == "__main__":
    namespace.enter("nft", "nsenter")
    unittest.main(verbosity=2)

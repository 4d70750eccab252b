#!/usr/bin/env python3
"""The doctor and `beeline devices` on a live RDMA device of the kernel: rdma_rxe in a guest."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT))
from lab import Lab, reason_against  # noqa: E402

NOT_RUN = 77  # ctest counts this as not run
BEELINE = BUILD / "bin/beeline"
SSHD = shutil.which("dropbear", path="/usr/sbin:/usr/bin:/sbin:/bin")
# What is true of every guest: nobody sets its clock, and it has half of its little memory for /dev/shm.
TRUE_ALARMS = {"host.clock", "container.shm"}
# What the doctor sees of rxe0, and where.
LIVE = {
    "nic.devices": "/sys/class/infiniband/ holds rxe0",
    "nic.port_state": "/sys/class/infiniband/rxe0/ports/1/state = 4: ACTIVE",
    "nic.node_guid": "/sys/class/infiniband/rxe0/node_guid = 5054:00ff:",
    "roce.gid_present": "/sys/class/infiniband/rxe0/ports/1/gids: 3 that are not zero",
    "roce.gid_v2": "(RoCE v2, eth0)",
    "roce.gid_routable": "/sys/class/infiniband/rxe0/ports/1/gids/1 = 0000:0000:0000:0000:0000:ffff:0a4d:0002",
    "roce.gid_types": "readable for all 3 GIDs",
    "roce.gid_index": "/sys/class/infiniband/rxe0/ports/1/gids/1",
    "container.device_nodes": "/dev/infiniband/ holds uverbs0",
    "container.device_access": "open(/dev/infiniband/uverbs0): ok",
    "container.gid_address": "(10.77.0.2), and the address is here",
    "services.rdma_link": "all 1 devices of /sys/class/infiniband",
    "services.provider": "librxe-rdmav",
}

# The guest's sshd: it knows one key, and starts what it is asked for in an environment of its own.
SSH_SERVER = """
mkdir -p /etc/dropbear /root/.ssh && cp /share/key.pub /root/.ssh/authorized_keys && chmod -R go= /root
printf '#!/bin/sh\\nLD_LIBRARY_PATH=%s exec /programs/bin/beeline "$@"\\n' "$LD_LIBRARY_PATH" >/bin/beeline
chmod +x /bin/beeline
dropbear -R -F -E -s
"""
# What stands first in PATH and is called ssh: the real one, with the test's configuration instead of the user's.
SSH_CLIENT = """#!/bin/sh
exec {ssh} -F {folder}/config "$@"
"""
SSH_CONFIG = """
User root
IdentityFile {folder}/key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile {folder}/known_hosts
LogLevel ERROR
"""


def examined(text):
    return {check["id"]: check for check in json.loads(text)["checks"]}


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="beeline-doctor."))
        self.lab = self.enterContext(Lab(guests=1, mtu=4200, share=self.folder, programs=[BEELINE, SSHD]))
        self.guest = self.lab.guest(0)

    def ssh_to_guest(self):
        """Starts an sshd in the guest; returns the PATH in which `ssh` reaches it without a question."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="beeline-ssh.")))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        shutil.copy(folder / "key.pub", self.folder)
        (folder / "config").write_text(SSH_CONFIG.format(folder=folder))
        (folder / "bin").mkdir()
        (folder / "bin/ssh").write_text(SSH_CLIENT.format(ssh=shutil.which("ssh"), folder=folder))
        (folder / "bin/ssh").chmod(0o755)
        self.guest.start(SSH_SERVER, timeout=200).wait_for("Not backgrounding")
        return f"{folder / 'bin'}:{os.environ['PATH']}"

    def test_examines_the_live_device_and_its_recording_alike(self):
        self.guest.run("beeline doctor --record /share/guest.tar.zst", timeout=120).check()
        said = self.guest.run("beeline doctor --json", timeout=120)
        live = examined(said.output)
        self.assertEqual(said.status, 2, said.output)
        alarms = {name for name, check in live.items() if check["status"] in ("failure", "warning")}
        self.assertEqual(alarms, TRUE_ALARMS, said.output)
        for name, evidence in LIVE.items():
            self.assertEqual(live[name]["status"], "ok", live[name])
            self.assertIn(evidence, live[name]["evidence"])
        for name, check in live.items():
            self.assertTrue(check["evidence"], name)
            # A guest lacks programs, no device and no right: nothing of RoCE is hidden from root.
            if check["status"] == "unreadable":
                self.assertRegex(check["evidence"], "not installed|BusyBox", name)
            if name.startswith(("roce.", "nic.")):
                self.assertIn(check["status"], ("ok", "not_applicable"), check)
        recorded = subprocess.run([BEELINE, "doctor", "--no-compare", "--json", "--root", f"{self.folder}/guest.tar.zst"],
                                  capture_output=True, text=True, timeout=120)
        self.assertEqual(recorded.returncode, 2, recorded.stderr)
        self.assertEqual({name: (check["status"], check["compare"]) for name, check in examined(recorded.stdout).items()},
                         {name: (check["status"], check["compare"]) for name, check in live.items()})
        self.assertLess(len(self.guest.run("beeline doctor -v", timeout=120).output.splitlines()), 1500)

    def test_a_fault_of_the_live_device_is_found(self):
        self.guest.run("ip link set eth0 down").check()
        live = examined(self.guest.run("beeline doctor --json --only nic,roce", timeout=120).output)
        alarms = {name for name, check in live.items() if check["status"] in ("failure", "warning")}
        self.assertIn("nic.port_state", alarms, live)
        self.assertIn("rxe0", live["nic.port_state"]["evidence"])

    def test_two_hosts_ping_over_a_kernel_device_and_a_software_card(self):
        listener = self.guest.start("beeline doctor --listen", timeout=200).wait_for("listening")
        said = self.lab.host(BEELINE, "doctor", "--json", "--peer", self.guest.ipv4, timeout=150)
        listener.kill("TERM")
        checks = examined(said.output)
        self.assertEqual({check["status"] for check in checks.values()} - {"ok", "not_applicable"}, set(), said.output)
        self.assertEqual(said.status, 0)
        self.assertIn(f"bee0 {self.lab.ipv4} -> rxe0 {self.guest.ipv4}: WRITE and SEND, every byte right",
                      checks["peer.rc_ping"]["evidence"])
        self.assertIn(f"bee0 {self.lab.ipv6} -> rxe0 {self.guest.ipv6}", checks["peer.rc_ping"]["evidence"])

        self.device_counted_the_ping()

    def test_ssh_starts_the_listener_on_the_other_host(self):
        path = self.ssh_to_guest()
        said = self.lab.host(BEELINE, "doctor", "--json", "--peer", self.guest.ipv4, "--ssh", timeout=150,
                             env={"PATH": path})
        checks = examined(said.output)
        self.assertEqual({check["status"] for check in checks.values()} - {"ok", "not_applicable"}, set(), said.output)
        self.assertEqual(said.status, 0)
        self.assertIn(f"bee0 {self.lab.ipv4} -> rxe0 {self.guest.ipv4}: WRITE and SEND, every byte right",
                      checks["peer.rc_ping"]["evidence"])
        self.device_counted_the_ping()
        # It ended with the conversation.
        self.assertEqual(self.guest.run("grep -l 'stdi[o]' /proc/[0-9]*/cmdline 2>/dev/null").output, "")

        lacking = self.lab.host(BEELINE, "doctor", "--json", "--peer", self.guest.ipv4, "--ssh", "--ssh-program",
                                "/nowhere/beeline", timeout=60, env={"PATH": path})
        self.assertEqual(lacking.status, 3, lacking.output)
        complaint, _, said = lacking.output.partition("{")
        self.assertIn("/nowhere/beeline: not found", complaint)
        reached = examined("{" + said)["peer.listener"]
        self.assertEqual(reached["status"], "failure")
        self.assertIn(f"`ssh {self.guest.ipv4} /nowhere/beeline doctor --stdio` ended early", reached["evidence"])
        self.assertIn("--ssh-program", reached["fix"])

    def device_counted_the_ping(self):
        devices = {each["name"]: each for each in json.loads(self.guest.run("beeline devices --json").check())["devices"]}
        self.assertEqual(devices["rxe0"]["provider"], "system")
        self.assertEqual(devices["rxe0"]["interface"], "eth0")
        self.assertGreater(devices["rxe0"]["counters"]["rx_packets"], 8)
        self.assertGreater(devices["rxe0"]["counters"]["rdma_recvs"], 0)
        self.assertNotIn("lifespan", devices["rxe0"]["counters"])
        table = self.guest.run("beeline devices -v").check()
        self.assertRegex(table, r"(?m)^rxe0 +eth0 +active .* 4096/4096 .* system .*\n.* 1 +RoCE v2 +10\.77\.0\.2$")
        self.assertRegex(table, r"rxe0 port 1 \(port counters; zeros left out\)\n(  .*\n)*  rx_packets +\d+\n")


if __name__ == "__main__":
    if why := reason_against():
        print(f"doctor_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)

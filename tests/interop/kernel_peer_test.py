#!/usr/bin/env python3
"""bee0 on this host and Linux's rdma_rxe in a guest at each other: every case of verbs_peer with either
end as client and as server, beeline perf with every byte checked, and damage on the cable between them."""
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT))
from lab import Lab, LabError, reason_against  # noqa: E402
from lab.capture import check_icrc, dissect  # noqa: E402
from lab.icrc_check import network_layer, records  # noqa: E402

NOT_RUN = 77  # ctest counts this as not run
DOCUMENT = ROOT / "docs/interop.md"
TABLE_BEGIN, TABLE_END = "<!-- what both ends reported: begin -->\n", "<!-- what both ends reported: end -->\n"
BEELINE, PEER = BUILD / "bin/beeline", BUILD / "bin/verbs_peer"
ENVIRONMENT = {"BEELINE_LOG": "error"}
# Where the kernel's card says something else than the standard: (case, who requests): what both ends
# report then. Anything else than this, or than what the case demands, fails.
KERNEL_DEVIATIONS = {
    ("send_bad_lkey", "rxe0"): ([2, 5], []),
    ("write_bad_lkey", "rxe0"): ([2, 5], []),
    ("send_short_receive", "bee0"): ([11, 5], [2]),
}
STATUS = {0: "success", 1: "local length error", 2: "local QP operation error", 4: "local protection error", 5: "flushed",
          9: "remote invalid request", 10: "remote access error", 11: "remote operation error", 12: "retries exceeded",
          13: "RNR retries exceeded"}


def bee_device(lab):
    """(name, {4: index, 6: index}) of the card on the host's end of the bridge."""
    devices = json.loads(lab.host(BEELINE, "devices", "--json").check())["devices"]
    device = next(each for each in devices if each.get("interface") == "br0")
    indices = {}
    for gid in device["gids"]:
        for version, address in ((4, lab.ipv4), (6, lab.ipv6)):
            if gid["address"] == address:
                indices[version] = gid["index"]
    return device["name"], indices


class Peers:
    """The same program at both ends: one of them, `leader` ("host" or "guest"), is the client."""

    def __init__(self, lab):
        self.lab, self.guest = lab, lab.guest(0)
        self.device, self.indices = bee_device(lab)

    def start(self, end, program, options, address, version, timeout, env=None):
        """One end, started; ADDRESS in its options is `address`."""
        options = options.replace("ADDRESS", address)
        if end == "guest":
            return self.guest.start(f"{program.name} {options} -d rxe0 -x {self.guest.gid(version)}", timeout=timeout)
        words = f"{options} -d {self.device} -x {self.indices[version]}".split()
        return self.lab.host_start(program, *words, timeout=timeout, env={**ENVIRONMENT, **(env or {})})

    def run(self, program, version, leader, server_options, leader_options, port, statuses=(0,), env=None):
        """The leader's output; raises when either end fails."""
        server_end, address = ("guest", self.guest) if leader == "host" else ("host", self.lab)
        address = address.ipv4 if version == 4 else address.ipv6
        server = self.start(server_end, program, server_options, address, version, 300, env)
        self.wait_until_listening(port, server_end)
        client = self.start(leader, program, leader_options, address, version, 280, env).wait()
        ended = server.wait()
        if client.status not in statuses or ended.status:
            raise AssertionError(f"{program.name}, {leader} leads, IPv{version}: status {client.status} and {ended.status}\n"
                                 f"{client.output[-6000:]}\n-- the other end:\n{ended.output[-2000:]}")
        return client.output

    def kernel_counter(self, name):
        return int(self.guest.run(f"cat /sys/class/infiniband/rxe0/ports/1/hw_counters/{name}").check())

    def wait_until_listening(self, port, end):
        test = (f"i=0; until grep -qi ':{port:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ $i -gt 200 ]; do "
                "sleep 0.1; i=$((i+1)); done")
        (self.guest.run(test) if end == "guest" else self.lab.host("sh", "-c", test)).check()

    def peer(self, version, mtu, leader, folder, cases=""):
        """verbs_peer's record: a list of what both ends saw, with `requester_is` bee0 or rxe0."""
        shown = "/share" if leader == "guest" else folder
        options = f"ADDRESS -m {mtu} --json {shown}/record.json" + (f" --cases {cases}" if cases else "")
        print(self.run(PEER, version, leader, "--listen --bind ADDRESS", options, 18600, statuses=(0, 1)))
        record = json.loads(pathlib.Path(folder, "record.json").read_text())
        for each in record:
            each["requester_is"] = "bee0" if (each["requester_is"] == "leader") == (leader == "host") else "rxe0"
        return record

    def perf(self, test, leader, options, env=None):
        return self.run(BEELINE, 4, leader, f"perf {test}", f"perf {test} {options} ADDRESS", 18515, env=env)


def unexpected(record):
    """What neither the standard nor the kernel's known deviations explain."""
    found = []
    for each in record:
        known = KERNEL_DEVIATIONS.get((each["case"], each["requester_is"]))
        saw = (each["requester"]["statuses"], each["responder"]["statuses"])
        if (each["requester"]["wrong"] or each["responder"]["wrong"]) and saw != known:
            found.append(each)
        if known and saw != known:
            found.append({"the kernel's deviation is gone": each})
    return found


def table_of(record):
    """The negative cases as a table for docs/interop.md."""
    def words(statuses):
        return ", then ".join(STATUS[status] for status in statuses) or "-"

    by_case = {}
    for each in record:
        if set(each["requester"]["statuses"]) != {0} or "unmapped" in each["case"]:
            by_case.setdefault(each["case"], {})[each["requester_is"]] = each
    lines = ["| case | bee0 asks: bee0 says | rxe's receive says | rxe asks: rxe says | bee0's receive says |", "|---|---|---|---|---|"]
    for case in sorted(by_case):
        cells = [case]
        for who in ("bee0", "rxe0"):
            each = by_case[case].get(who)
            mark = " (*)" if (case, who) in KERNEL_DEVIATIONS else ""
            cells += [words(each[end]["statuses"]) + mark if each else "success" for end in ("requester", "responder")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def numbered(path):
    """How many IPv4 packets of a capture have an identification other than 0."""
    packets = (network_layer(link, frame) for link, frame, _ in records(path.read_bytes()))
    return sum(version == 4 and struct.unpack_from(">H", ip, 4)[0] != 0 for version, ip in packets)


class HostAndKernel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="beeline-interop."))
        cls.lab = cls.enterClassContext(Lab(guests=1, mtu=4200, share=cls.folder, programs=[BEELINE, PEER], damage={"seed": 1}))
        cls.peers = Peers(cls.lab)

    def tearDown(self):
        self.lab.set_damage(drop=0, duplicate=0, reorder=0, corrupt=0)

    def everything(self, version, mtu, leader):
        """The whole table of cases; and all packets of it are right in the eyes of others."""
        capture = pathlib.Path(self.folder, f"{leader}-{version}.pcap")
        with self.lab.capture(capture):
            record = self.peers.peer(version, mtu, leader, self.folder)
        self.assertEqual(unexpected(record), [])
        cases = int(self.lab.host("sh", "-c", f"{PEER} --list | wc -l").check())
        self.assertEqual(len(record), 2 * cases)
        right, summary = check_icrc(capture)
        self.assertTrue(right, summary)
        tshark = dissect(capture)
        self.assertEqual(tshark.complaints, [])
        self.assertEqual(tshark.packets, summary["packets"])
        return record

    def test_ipv4_mtu_1024_kernel_leads(self):
        table = table_of(self.everything(4, 1024, "guest"))
        before, _, rest = DOCUMENT.read_text().partition(TABLE_BEGIN)
        shown, _, after = rest.partition(TABLE_END)
        if os.environ.get("BEELINE_WRITE_DOCS"):
            DOCUMENT.write_text(before + TABLE_BEGIN + table + TABLE_END + after)
        else:
            self.assertEqual(shown, table, "docs/interop.md is out of date: run this with BEELINE_WRITE_DOCS=1")

    def test_ipv6_mtu_4096_host_leads(self):
        self.everything(6, 4096, "host")

    def test_perf_checks_every_byte(self):
        for leader in ("host", "guest"):
            for test, options in (("write_bw", "-s 65536 -n 60"), ("read_bw", "-s 65536 -n 60"), ("send_bw", "-s 9999 -n 60"),
                                  ("write_bw", "-s 4096 -n 50 -q 8"), ("send_lat", "-s 2 -n 100")):
                with self.subTest(leader=leader, test=test):
                    self.peers.perf(test, leader, f"{options} --check")

    def test_trains_are_sent_and_the_kernel_takes_them(self):
        """The card hands trains to the kernel whole (seen on the bridge), which cuts and numbers them as the card
        foresaw (seen at the guest), and rxe accepts every packet."""
        whole, apart = pathlib.Path(self.folder, "whole.pcap"), pathlib.Path(self.folder, "apart.pcap")
        # A bridge carries trains whole when one of its ports would: here one that leads nowhere.
        self.lab.host("ip", "link", "add", "spare0", "mtu", "4200", "type", "veth", "peer", "name", "spare1").check()
        self.addCleanup(lambda: self.lab.host("ip", "link", "del", "spare0").check())
        self.lab.host("ip", "link", "set", "spare0", "master", "br0", "up").check()
        self.lab.host("ethtool", "-K", "br0", "tx-udp-segmentation", "on").check()
        self.addCleanup(lambda: self.lab.host("ethtool", "-K", "br0", "tx-udp-segmentation", "off").check())
        accepted = self.peers.kernel_counter("rcvd_pkts")
        ours = f"udp port 4791 and src host {self.lab.ipv4}"
        with self.lab.capture(whole, filter=ours), self.lab.capture(apart, on=self.lab.guest(0).tap, filter=ours):
            said = self.peers.perf("write_bw", "host", "-s 65536 -n 60 --check", {"BEELINE_LOG": "debug"})
            said += self.peers.perf("read_bw", "guest", "-s 65536 -n 60 --check")
        counted = re.search(r"(\d+) of those sent left in (\d+) trains", said)
        self.assertIsNotNone(counted, said)
        self.assertGreater(int(counted[1]), 2 * int(counted[2]))
        (right, before), (right_at_guest, after) = check_icrc(whole), check_icrc(apart)
        self.assertTrue(right, before)
        self.assertTrue(right_at_guest, after)
        self.assertGreaterEqual(before["trains"], int(counted[2]), "the client's alone were more")
        self.assertEqual(after["trains"], 0)
        self.assertEqual(after["packets"], before["packets"], "packets were lost or doubled between the captures")
        self.assertEqual(dissect(apart).complaints, [])
        self.assertEqual(numbered(apart), before["packets_in_trains"] - before["trains"])
        self.assertEqual(self.peers.kernel_counter("rcvd_pkts") - accepted, after["packets"])

    def test_damage_is_survived(self):
        good = "send,send_imm,write,write_imm,read,read_many_qps"
        for number, kinds in enumerate(({"drop": 2}, {"duplicate": 5}, {"reorder": 5}, {"corrupt": 2},
                                        {"drop": 1, "duplicate": 2, "reorder": 2, "corrupt": 1})):
            with self.subTest(**kinds):
                before = self.lab.damage_counts()
                self.lab.set_damage(**{"seed": number, "drop": 0, "duplicate": 0, "reorder": 0, "corrupt": 0, **kinds})
                record = self.peers.peer(4, 1024, "guest" if number % 2 else "host", self.folder, good)
                self.assertEqual(unexpected(record), [])
                self.assertEqual(len(record), 12)
                after = self.lab.damage_counts()
                for kind in kinds:
                    self.assertGreater(after[kind], before[kind], "nothing was damaged")


if __name__ == "__main__":
    if why := reason_against():
        print(f"kernel_peer_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)

"""A host that vanishes (no FIN, no RST, just silence) is named by the rank that is left, within 5 s.

Two network namespaces with a cable between them play the hosts; `beeline bench` runs in both."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BEELINE = Path(os.environ.get("BEELINE_BUILD", ROOT / "build")) / "bin/beeline"
NOT_RUN = 77  # ctest counts this as not run
HOSTS = tuple(f"beeline-{os.getpid()}-{side}" for side in "ab")
ADDRESSES = ("10.97.0.1", "10.97.0.2")
CABLE = "cable"

# What the promise says, and what a loaded machine may add to it.
NAMED_WITHIN_S, PATIENCE_S = 5.0, 20.0
START_S = 60.0
FIRST_ROW = re.compile(r"^\s*4096\s", re.MULTILINE)

DROP = """
table inet beeline_test {{
  chain in {{ type filter hook input priority 0; iif lo accept; {what} drop; }}
  chain out {{ type filter hook output priority 0; oif lo accept; {what} drop; }}
}}
"""


def do(*words, **options):
    subprocess.run([str(word) for word in words], check=True, **options)


def output_of(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def reason_against():
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (scripts/setup --for-tests does that)"
    if os.geteuid() != 0:
        return "it makes network namespaces, which takes root"
    probe = subprocess.run(["ip", "netns", "add", HOSTS[0]], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no network namespace can be made here: {probe.stderr.strip()}"
    do("ip", "netns", "del", HOSTS[0])
    return None


def build_hosts():
    for host in HOSTS:
        do("ip", "netns", "add", host)
    do("ip", "link", "add", CABLE, "netns", HOSTS[0], "type", "veth", "peer", "name", CABLE, "netns", HOSTS[1])
    for host, address in zip(HOSTS, ADDRESSES):
        do("ip", "-n", host, "address", "add", f"{address}/24", "dev", CABLE)
        for interface in ("lo", CABLE):
            do("ip", "-n", host, "link", "set", interface, "up")
    for host in HOSTS:  # until then the device of that interface is down, too
        give_up_at = time.monotonic() + START_S
        while "state UP" not in output_of("ip", "-n", host, "link", "show", CABLE) and time.monotonic() < give_up_at:
            time.sleep(0.01)


def remove_hosts():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], capture_output=True)


class Member:
    """One rank on one host, and what it says."""

    def __init__(self, rank):
        self.rank = rank
        self.output = ""
        self.running = threading.Event()  # the first row of the table is there
        self.ended_at = None
        words = ["ip", "netns", "exec", HOSTS[rank], BEELINE, "bench", "all_reduce", "-b", "4K", "-e", "32M", "-f", "2"]
        words += ["-n", "200", "-c", "0", "--rank", rank, "--size", "2", "--rendezvous", f"{ADDRESSES[0]}:29500"]
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.output += line
            if re.match(FIRST_ROW, line):
                self.running.set()
        self.process.wait()
        self.ended_at = time.monotonic()
        self.running.set()  # nobody has to wait for that any more

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.reader.join()
        self.process.stdout.close()


class Vanished(unittest.TestCase):
    def setUp(self):
        self.addCleanup(remove_hosts)
        build_hosts()

    def check(self, vanish):
        members = [Member(rank) for rank in (0, 1)]
        for member in members:
            self.addCleanup(member.end)
        members[0].running.wait(START_S)
        said = "".join(f"rank {member.rank}:\n{member.output}" for member in members)
        self.assertRegex(members[0].output, FIRST_ROW, said)
        vanish()
        vanished_at = time.monotonic()
        for member in members:
            member.reader.join(max(0.0, vanished_at + PATIENCE_S - time.monotonic()))
        for member in members:
            said = f"rank {member.rank}:\n{member.output}"
            self.assertIsNotNone(member.ended_at, f"waits after {PATIENCE_S} s; {said}")
            self.assertEqual(member.process.returncode, 1, said)
            error = [line for line in member.output.splitlines() if "beeline" in line][-1]
            self.assertRegex(error, rf"\brank {1 - member.rank}\b", said)
            took_s = member.ended_at - vanished_at
            late = "" if took_s <= NAMED_WITHIN_S else f", later than {NAMED_WITHIN_S} s: is this machine loaded?"
            print(f"rank {member.rank} after {took_s:.1f} s{late}: {error[:250]}", flush=True)
        return members

    def drop(self, what):
        do("ip", "netns", "exec", HOSTS[1], "nft", "-f", "-", input=DROP.format(what=what), text=True)

    def test_cable_pulled(self):
        self.check(lambda: do("ip", "-n", HOSTS[1], "link", "set", CABLE, "down"))

    def test_address_taken_away(self):
        """The rank that lost it says so."""
        members = self.check(lambda: do("ip", "-n", HOSTS[1], "address", "del", f"{ADDRESSES[1]}/24", "dev", CABLE))
        self.assertIn(f"no longer has the address {ADDRESSES[1]}", members[1].output)

    def test_silence(self):
        self.check(lambda: self.drop("meta length > 0"))

    def test_silence_of_the_control_connection_only(self):
        """The data still flows, so nothing but TCP's keepalives can notice."""
        self.check(lambda: self.drop("meta l4proto tcp"))


if __name__ == "__main__":
    if reason := reason_against():
        print(f"{os.path.basename(sys.argv[0])} does not run: {reason}")
        sys.exit(NOT_RUN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        unittest.main(verbosity=2)
    finally:
        remove_hosts()

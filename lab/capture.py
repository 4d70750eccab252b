"""Captures on the lab's network, and what judges them."""
import collections
import json
import pathlib
import subprocess
import sys
import time

from lab.errors import LabError

ICRC_CHECK = pathlib.Path(__file__).resolve().parent / "icrc_check.py"


class Capture:
    """tcpdump, as a context: it captures once the context is entered, the file is whole behind it."""

    def __init__(self, lab, path, on, what):
        self._lab, self._path, self._on, self._what = lab, str(path), on, what

    def __enter__(self):
        # -Z root: not as the user tcpdump, who may not write there. 64 MiB of buffer: nothing is lost.
        self._program = self._lab.host_start("tcpdump", "-i", self._on, "-n", "-Z", "root", "-s", "0", "-B", "65536", "-U", "-w",
                                             self._path, self._what, timeout=3600)
        self._program.wait_for("listening on")
        return self

    def __exit__(self, *_):
        # The kernel hands packets over once a second at the latest.
        size, still, end = -1, 0, time.monotonic() + 20
        while still < 15 and time.monotonic() < end:
            time.sleep(0.1)
            now = pathlib.Path(self._path).stat().st_size
            size, still = now, still + 1 if now == size else 0
        self._program.kill("INT")
        said = self._program.wait(60).output
        if "0 packets dropped by kernel" not in said:
            raise LabError(f"the capture is not complete: {said}")


def check_icrc(path):
    """(right, summary) of lab/icrc_check.py."""
    done = subprocess.run([sys.executable, "-B", str(ICRC_CHECK), str(path)], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise LabError(f"icrc_check.py: {done.stderr.strip()}")
    return done.returncode == 0, json.loads(done.stdout)


Dissection = collections.namedtuple("Dissection", "packets complaints zero_checksums")
PROBE = "udp.length == 24 && udp.payload[0] == ff && udp.payload[2:2] == be:e1"  # as in icrc_check.py
# What our payloads happen to look like does not matter here, only the packets around them.
PAYLOAD_GUESSES = ("rpcrdma_infiniband", "nvme_rdma", "lnet_ib", "smb_direct_infiniband", "eth_over_ib", "mellanox_eoib",
                   "iser_infiniband", "sdp_infiniband", "smcr_infiniband", "fc_infiniband")
# rxe sends UDP over IPv6 without a checksum, as tunnels may (RFC 6936); tshark calls that an error.
ZERO_CHECKSUM = "Illegal checksum value (0)"


def dissect(path):
    """How tshark reads a capture: the number of RoCE packets, a line for each packet to port 4791 that
    it cannot read or finds wrong, and the number of those over IPv6 without a UDP checksum."""
    plain = [word for name in PAYLOAD_GUESSES for word in ("--disable-heuristic", name)]

    def lines(what):
        done = subprocess.run(["tshark", "-n", "-r", str(path), "-Y", f"udp.dstport == 4791 && ({what})", "-T", "fields",
                               "-e", "frame.number", "-e", "_ws.col.Info", "-e", "_ws.expert.message", *plain],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"tshark: {done.stderr.strip()}")
        return done.stdout.splitlines()

    packets = lines("infiniband")
    wrong = lines(f"(!infiniband && !({PROBE})) || _ws.malformed || _ws.expert.severity == error")
    unsummed = [line for line in wrong if line.split("\t")[-1] == ZERO_CHECKSUM]
    complaints = [line for line in wrong if line not in unsummed] + [line for line in packets if "Unknown" in line]
    return Dissection(len(packets), complaints, len(unsummed))

"""A network namespace of its own for a test: nothing but a loopback interface, and no
traffic on it but the test's."""

import os
import re
import shutil
import subprocess
import sys

NOT_RUN = 77  # ctest counts this as not run
INSIDE = "BEELINE_TEST_IN_NAMESPACE"


def reason_against(tools):
    missing = [tool for tool in ("unshare", "ip", *tools) if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (scripts/setup --for-tests does that)"
    if os.geteuid() != 0:
        return "it makes a network namespace, which takes root"
    probe = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no network namespace can be made here: {probe.stderr.strip()}"
    return None


def enter(*tools):
    """Runs the calling program again inside; returns there only."""
    if os.environ.get(INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if reason := reason_against(tools):
        print(f"{os.path.basename(sys.argv[0])} does not run: {reason}")
        sys.exit(NOT_RUN)
    sys.exit(subprocess.run(["unshare", "--net", sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}).returncode)


DROP_ROCE = """
table inet beeline_test {
  chain in {
    type filter hook input priority 0;
    udp dport 4791 drop
  }
}
"""


def drop_roce():
    """From now on nothing arrives on UDP 4791."""
    subprocess.run(["nft", "-f", "-"], input=DROP_ROCE, text=True, check=True)


LOSE_ROCE = """
table inet beeline_test {{
  counter lost {{ }}
  chain in {{
    type filter hook input priority 0;
    udp dport 4791 numgen random mod 1000 < {per_mille} counter name lost drop
  }}
}}
"""


def lose_roce(per_mille):
    """From now on so many packets in 1000 are lost on UDP 4791."""
    subprocess.run(["nft", "-f", "-"], input=LOSE_ROCE.format(per_mille=per_mille), text=True, check=True)


def lost_packets():
    words = ["nft", "list", "counter", "inet", "beeline_test", "lost"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return int(re.search(r"packets (\d+)", said).group(1))


def drop_nothing():
    subprocess.run(["nft", "flush", "ruleset"], check=True)

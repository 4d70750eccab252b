"""Loss on a wire, by nftables: uniform, of arriving packets, in both directions."""

import re
import subprocess

from .stage import Failure

RULES = """
table inet beeline_compare {{
  counter lost {{ }}
  chain arriving {{
    type filter hook input priority 0;
    {what} numgen random mod 100000 < {of_100000} counter name lost drop
  }}
}}
"""
ROCE = "udp dport 4791"
IPERF3 = "meta l4proto tcp"


def nft(place, script, *words):
    done = subprocess.run(place.words(["nft", *(words or ("-f", "-"))]), input=script, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failure(f"nft: {done.stderr.strip().splitlines()[0]}")
    return done.stdout


def lose(places, what, percent):
    for place in places:
        nft(place, RULES.format(what=what, of_100000=round(percent * 1000)))


def lose_nothing(places):
    for place in places:
        nft(place, None, "flush", "ruleset")


def lost(places):
    """How many packets were lost since lose()."""
    listed = [nft(place, None, "list", "counter", "inet", "beeline_compare", "lost") for place in places]
    return sum(int(re.search(r"packets (\d+)", text).group(1)) for text in listed)


def no_offload(place):
    """Every packet crosses the wire as a packet of its own, so that each is lost or not for itself; with offload, a
    whole train or TCP segment of up to 64 KiB would be."""
    words = ["ethtool", "-K", place.interface, "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off"]
    done = subprocess.run(place.words(words), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"ethtool: {done.stderr.strip()}")

"""Loss on the wire: what is left of the loss-free goodput, beside TCP's. A contender runs without loss and with each share of
it one right after the other, so that its shares are pairs, too."""

from .. import loss, network
from ..cases import BEELINE, IPERF3, LOSS, LOSSES, MTUS, loss_name, share_name
from ..series import Contender
from . import streams

MESSAGE = 64 << 10


def define(bench, mtu):
    for percent in (0, *LOSSES):
        bench.results.define(LOSS, loss_name(mtu, percent), "GB/s", less_is_better=False)
    for percent in LOSSES:
        bench.results.define(LOSS, share_name(mtu, percent), "%", less_is_better=False)


def levels(bench, wire, mtu, what, stream):
    """The goodput at every level of loss, and its shares."""
    numbers = {(LOSS, loss_name(mtu, 0)): (whole := stream()[0])}
    for percent in LOSSES:
        loss.lose(wire, what, percent)
        try:
            rate = stream()[0]
            bench.say(f"{loss.lost(wire)} packets were lost, {rate:.3f} of {whole:.3f} GB/s are left")
        finally:
            loss.lose_nothing(wire)
        numbers[LOSS, loss_name(mtu, percent)] = rate
        numbers[LOSS, share_name(mtu, percent)] = 100 * rate / whole
    return numbers


def run(bench):
    bench.peers.require("nft", "ethtool")
    for mtu in MTUS:
        wire = network.wire(bench.stage, mtu, f"loss{mtu}")
        for place in wire:
            loss.no_offload(place)
        define(bench, mtu)
        keys = [key for key in bench.results.by_key if key[0] == LOSS and key[1].startswith(f"MTU {mtu}")]
        contenders = [Contender(BEELINE, keys, lambda: levels(bench, wire, mtu, loss.ROCE,
                                                              lambda: streams.beeline_stream(bench, wire, MESSAGE)))]
        if bench.tried(IPERF3, lambda: bench.peers.require("iperf3") or True):
            contenders.append(Contender(IPERF3, keys, lambda: levels(bench, wire, mtu, loss.IPERF3,
                                                                     lambda: streams.iperf3_stream(bench, wire))))
        bench.compare(f"loss, MTU {mtu}", contenders)

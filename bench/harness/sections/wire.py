"""Two hosts and a wire: bandwidth, latency, all_reduce; and the CPU time that the bandwidth took."""

from .. import network
from ..cases import (BEELINE, CPU, GLOO, IPERF3, LATENCY, MESSAGES, MTUS, PATH_MTU, RAW, TORCH_SIZES, WIRE, on_wire,
                     stream_name)
from ..parse import byte_count
from ..series import Contender
from . import all_reduce, streams


def define_streams(bench, mtu):
    for message in MESSAGES:
        name = stream_name(mtu, message)
        if bench.wants(WIRE):
            bench.results.define(WIRE, name, "GB/s", less_is_better=False)
        if bench.wants(CPU):
            bench.results.define(CPU, name, "s/GB", less_is_better=True)


def stream_contenders(bench, wire, mtu):
    """All but iperf3 run once per message size; iperf3 has none, and its number stands beside both."""
    names = [stream_name(mtu, message) for message in MESSAGES]

    def of(stream, *covered):
        rate, cpu = stream
        return {(section, name): number for name in covered for section, number in ((WIRE, rate), (CPU, cpu))}

    def ours():
        numbers = {}
        for name, message in zip(names, MESSAGES):
            numbers.update(of(streams.beeline_stream(bench, wire, message), name))
        return numbers

    def tcp():
        return of(streams.iperf3_stream(bench, wire), *names)

    def raw():
        return {(WIRE, name): streams.raw_udp_stream(bench, wire, message, PATH_MTU[mtu])
                for name, message in zip(names, MESSAGES)}

    both = [(section, name) for section in (WIRE, CPU) for name in names]
    contenders = [Contender(BEELINE, both, ours)]
    if bench.tried(IPERF3, lambda: bench.peers.require("iperf3") or True):
        contenders.append(Contender(IPERF3, both, tcp))
    if bench.wants(WIRE):
        contenders.append(Contender(RAW, [(WIRE, name) for name in names], raw))
    return contenders


def compare_latency(bench, wire, mtu):
    key = WIRE, on_wire(mtu, LATENCY)
    bench.results.define(*key, "us", less_is_better=True)
    bench.compare(f"wire, MTU {mtu}, half round trip",
                  [Contender(BEELINE, [key], lambda: {key: streams.beeline_half_round_trip(bench, wire)}),
                   Contender(RAW, [key], lambda: {key: streams.raw_udp_half_round_trip(bench, wire)})])


def compare_torch(bench, wire, mtu):
    sizes = bench.settings.sizes(TORCH_SIZES)

    def name(size):
        return on_wire(mtu, f"PyTorch all_reduce, {byte_count(size)}")

    for size in sizes:
        bench.results.define(WIRE, name(size), "us", less_is_better=True)
    bench.compare(f"wire, MTU {mtu}, PyTorch", [all_reduce.torch(bench, WIRE, backend, label, wire, sizes, name)
                                                for backend, label in (("beeline", BEELINE), ("gloo", GLOO))])


def run(bench):
    for mtu in MTUS:
        wire = network.wire(bench.stage, mtu, f"{mtu}")
        define_streams(bench, mtu)
        bench.compare(f"wire, MTU {mtu}", stream_contenders(bench, wire, mtu))
        if bench.wants(WIRE):
            compare_latency(bench, wire, mtu)
            if bench.torch_python is not None:
                compare_torch(bench, wire, mtu)

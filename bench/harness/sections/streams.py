"""What carries bytes over a wire, or a packet there and back: a server on one host, a client on the other."""

import itertools

from ..parse import iperf3, perf_bandwidth, perf_latency, raw_latency, raw_stream
from ..stage import Failure

PERF_PORT, IPERF3_PORT, RAW_PORT = 18515, 5201, 14791
numbers = itertools.count()


def deadline(bench):
    return bench.settings.stream_seconds + 60


def beeline_perf(bench, wire, *options):
    """(the client's JSON, CPU seconds of both)."""
    client, server = wire
    environment = {"BEELINE_LANE": "wire", "BEELINE_INFLIGHT_BYTES": str(bench.settings.window_bytes)}
    program = bench.programs.beeline
    report = bench.stage.directory / f"perf{next(numbers)}.json"
    listening = bench.stage.start(server.words(bench.privileges([program, "perf", options[0]])), environment, deadline(bench))
    try:
        listening.wait_for_socket("tcp", PERF_PORT)
        words = [program, "perf", *options, server.address, "--json", report]
        asking = bench.stage.run(client.words(bench.privileges(words)), environment, deadline(bench))
        serving = listening.wait().require()
    finally:
        listening.end()
    text = report.read_text()
    if f'"{server.address}"' not in text:
        raise Failure(f"beeline perf did not talk to {server.address}: {text[:300]}")
    return text, asking.cpu_seconds + serving.cpu_seconds


def beeline_stream(bench, wire, message):
    """(GB/s, CPU seconds per GB)."""
    text, cpu = beeline_perf(bench, wire, "write_bw", "-s", message, "-D", bench.settings.stream_seconds)
    rate, total = perf_bandwidth(text)
    return rate, cpu / (total / 1e9) if total else None


def beeline_half_round_trip(bench, wire):
    text, _ = beeline_perf(bench, wire, "send_lat", "-n", bench.settings.pings)
    return perf_latency(text)


def iperf3_stream(bench, wire):
    """(GB/s, CPU seconds per GB)."""
    client, server = wire
    listening = bench.stage.start(server.words(["iperf3", "--server", "--one-off", "--port", IPERF3_PORT]), None, deadline(bench))
    try:
        listening.wait_for_socket("tcp", IPERF3_PORT)
        words = ["iperf3", "--client", server.address, "--port", IPERF3_PORT, "--time", bench.settings.stream_seconds, "--json"]
        asking = bench.stage.start(client.words(words), None, deadline(bench)).wait()
        rate, total = iperf3(asking.output or asking.require().output)
        serving = listening.wait().require()
    finally:
        listening.end()
    return rate, (asking.cpu_seconds + serving.cpu_seconds) / (total / 1e9) if total else None


def raw(bench, wire, serve, *command):
    client, server = wire
    program = bench.programs.raw_udp()
    listening = bench.stage.start(server.words(bench.privileges([program, serve, server.address])), None, deadline(bench))
    try:
        listening.wait_for_socket("udp", RAW_PORT)
        words = bench.privileges([program, command[0], server.address, *command[1:]])
        asking = bench.stage.run(client.words(words), None, deadline(bench))
        return asking.output, listening.wait().require().output
    finally:
        listening.end()


def raw_udp_stream(bench, wire, message, mtu):
    """GB/s that arrived."""
    settings = bench.settings
    rate, arrived = raw_stream(*raw(bench, wire, "receive", "send", "--message", message, "--mtu", mtu,
                                    "--window", settings.window_bytes, "--seconds", settings.stream_seconds))
    if arrived < 0.99:
        bench.say(f"raw UDP: {100 * (1 - arrived):.1f} % of what was sent was lost")
    return rate


def raw_udp_half_round_trip(bench, wire):
    return raw_latency(raw(bench, wire, "echo", "ping", "--iterations", bench.settings.pings)[0])

"""What the programs print, as numbers. Everything here is a pure function of text; what does not fit is a Failure."""

import json
from statistics import median

from .stage import Failure


def document(text, whose):
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Failure(f"{whose} did not print JSON: {text.strip()[:120] or 'nothing'}") from error
    if not isinstance(value, dict):
        raise Failure(f"{whose} did not print a JSON object: {text.strip()[:120]}")
    return value


def field(value, whose, *path):
    for name in path:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError) as error:
            raise Failure(f"{whose}'s output has no {'.'.join(map(str, path))}") from error
    return value


def lines(text, whose):
    """The JSON lines in what may have other lines too (mpirun's warnings)."""
    found = [document(line, whose) for line in text.splitlines() if line.startswith("{")]
    if not found:
        raise Failure(f"{whose} printed no result")
    return found


def all_reduce(text, whose):
    """{bytes: median microseconds} of what the all_reduce programs print."""
    return {field(line, whose, "bytes"): median(field(line, whose, "us")) for line in lines(text, whose)}


def iperf3(text):
    """(GB/s, bytes) that have arrived."""
    value = document(text, "iperf3")
    if "error" in value:
        raise Failure(f"iperf3: {value['error']}")
    received = field(value, "iperf3", "end", "sum_received")
    return field(received, "iperf3", "bits_per_second") / 8e9, field(received, "iperf3", "bytes")


def perf_bandwidth(text):
    """(GB/s, bytes) of `beeline perf write_bw --json`."""
    result = field(document(text, "beeline perf"), "beeline perf", "results", 0)
    return (field(result, "beeline perf", "bandwidth_GBps"),
            field(result, "beeline perf", "bytes") * field(result, "beeline perf", "iterations"))


def perf_latency(text):
    """Microseconds of half a round trip of `beeline perf send_lat --json`, the median."""
    return field(document(text, "beeline perf"), "beeline perf", "results", 0, "latency_us", "median")


def raw_stream(sender, receiver):
    """(GB/s, share that arrived) of raw_udp."""
    sent = field(document(sender, "raw_udp"), "raw_udp", "sent_bytes")
    got = document(receiver, "raw_udp")
    return field(got, "raw_udp", "GBps"), field(got, "raw_udp", "received_bytes") / max(sent, 1)


def raw_latency(text):
    return field(document(text, "raw_udp"), "raw_udp", "half_us", "median")


def idleness(text):
    """Milliseconds of CPU time per second."""
    line = lines(text, "beeline_all_reduce")[0]
    return 1000 * field(line, "beeline_all_reduce", "cpu_seconds") / field(line, "beeline_all_reduce", "seconds")


def byte_count(size):
    """8 B, 32 KiB, 128 MiB."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"

"""Starts the ranks of a test as processes and collects what they say."""

import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))

if not (BUILD / "python/beeline").is_dir():
    sys.exit(f"there is no {BUILD}/python/beeline: scripts/build makes it; BEELINE_BUILD names another build folder")


@dataclass
class Outcome:
    rank: int
    status: int  # as subprocess counts: negative for a signal
    output: str
    seconds: float


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank, size, port, extra):
    env = dict(os.environ)
    env.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        PYTHONPATH=str(BUILD / "python"),
        PYTHONUNBUFFERED="1",
    )
    env.update(extra or {})
    return env


def run_ranks(size, program, *arguments, limit_s=240, env=None, on_line=None):
    """Runs a Python program once per rank; `on_line(rank, line)` hears what they say.

    Past `limit_s` all are killed, which shows in the outcome and must fail the test.
    """
    port = free_port()
    started = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / program), *map(str, arguments)],
            env=environment(rank, size, port, env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for rank in range(size)
    ]
    outcomes = [None] * size

    def collect(rank):
        lines = []
        with processes[rank].stdout as stdout:
            for line in stdout:
                lines.append(line)
                if on_line:
                    on_line(rank, line)
        status = processes[rank].wait()
        outcomes[rank] = Outcome(rank, status, "".join(lines), time.monotonic() - started)

    collectors = [threading.Thread(target=collect, args=(rank,)) for rank in range(size)]
    for collector in collectors:
        collector.start()
    try:
        for collector in collectors:
            collector.join(max(0.0, started + limit_s - time.monotonic()))
    finally:
        late = [process for process in processes if process.poll() is None]
        for process in late:
            process.kill()
    for collector in collectors:
        collector.join()
    if late:
        for outcome in outcomes:
            outcome.output += f"\n[{len(late)} of {size} ranks killed: not done within {limit_s} s]\n"
    return outcomes


def transcript(outcomes):
    return "\n".join(f"--- rank {o.rank}: status {o.status} after {o.seconds:.1f} s\n{o.output}" for o in outcomes)

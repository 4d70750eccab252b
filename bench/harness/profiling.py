"""Counts instructions with callgrind: where the machine has no counters for perf, and exactly where it has."""

import re
from dataclasses import dataclass
from pathlib import Path

from . import callgrind, steps
from .parse import all_reduce, byte_count
from .report import VERDICTS, number, table
from .sections.streams import PERF_PORT
from .stage import free_port

DEADLINE_SECONDS = 300
PATH_MTU = 4096
# Short enough to be copied, two sizes that are one packet, and one that is sixteen.
SIZES = [64, 2048, 4096, 65536]


def valgrind(stage, name):
    path = stage.directory / f"callgrind.{name}"
    return path, ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={path}"]


def profile_of(path):
    return callgrind.read(Path(path).read_text(errors="replace"))


def packets(size):
    return max(1, -(-size // PATH_MTU))


@dataclass
class WriteRun:
    """Sender and receiver of so many WRITEs of one size."""

    size: int
    messages: int
    sender: callgrind.Profile
    receiver: callgrind.Profile

    def profile(self, end):
        return self.sender if end == steps.SENDER else self.receiver

    def packets(self, end):
        """How many there were: some are sent twice."""
        counted = self.profile(end).calls(steps.BUILD if end == steps.SENDER else steps.HANDLE)
        return counted or self.messages * packets(self.size)

    @property
    def sent_twice(self):
        return self.packets(steps.SENDER) - self.messages * packets(self.size)

    def instructions(self, step):
        """Per message or packet; None where no function has that name."""
        profile = self.profile(step.end)
        if not profile.functions(step.root) or (step.only and not profile.functions(step.less)):
            return None
        return step.instructions(profile) / (self.packets(step.end) if step.per == "packet" else self.messages)

    def calls(self, end, function):
        return self.profile(end).calls(rf"(__)?{function}(@.*)?$") / self.messages


def write_run(stage, place, program, size, messages):
    """The one of up to three in which the fewest packets were sent twice: under callgrind, answers are late."""
    runs = []
    while len(runs) < 3 and (not runs or runs[-1].sent_twice > messages / 100):
        runs.append(one_write_run(stage, place, program, size, messages))
    return min(runs, key=lambda run: run.sent_twice)


def one_write_run(stage, place, program, size, messages):
    environment = {"BEELINE_LANE": "wire"}
    server_file, server = valgrind(stage, f"server.{size}")
    client_file, client = valgrind(stage, f"client.{size}")
    listening = stage.start(place.words([*server, program, "perf", "write_bw"]), environment, DEADLINE_SECONDS)
    try:
        listening.wait_for_socket("tcp", PERF_PORT, patience=60)
        words = [*client, program, "perf", "write_bw", place.address, "-s", size, "-n", messages]
        stage.run(place.words(words), environment, DEADLINE_SECONDS)
        listening.wait().require()
    finally:
        listening.end()
    return WriteRun(size, messages, profile_of(client_file), profile_of(server_file))


@dataclass
class CallRun:
    """A rank of an all_reduce."""

    size: int
    calls: int
    profile: callgrind.Profile

    def fingerprints(self, sources):
        """Instructions per call of the lines that are there for the fingerprints."""
        return sum(cost for place, cost in self.profile.lines.items() if sources.is_fingerprint(*place)) / self.calls


class Sources:
    """The source tree that was profiled; tells what a line is for."""

    def __init__(self, root):
        self.root = Path(root)
        self.text = {}

    def is_fingerprint(self, file, line):
        name = name_in_sources(file)
        if name is None or not name.startswith(steps.FINGERPRINT_FOLDER):
            return False
        if name in steps.FINGERPRINT_FILES:
            return True
        return re.search(steps.FINGERPRINT_WORDS, self.line(name, line)) is not None

    def line(self, name, line):
        if name not in self.text:
            path = self.root / "src" / name
            self.text[name] = path.read_text().splitlines() if path.exists() else []
        lines = self.text[name]
        return lines[line - 1] if 0 < line <= len(lines) else ""


def name_in_sources(file):
    """exec/run/run.cc of /anywhere/src/exec/run/run.cc; compiled files may come from another clone's cache."""
    return file.rsplit("/src/", 1)[1] if "/src/" in file else None


def call_run(stage, place, program, size, ranks):
    rendezvous = f"{place.address}:{free_port()}"
    file, words = valgrind(stage, f"all_reduce.{ranks}")
    options = [program, "--size", ranks, "--rendezvous", rendezvous, "--sizes", size, "--batch-seconds", "0.3", "--batches", 5]
    # One of them suffices; the others would only be slow.
    commands = [(place.words([*(words if rank == 0 else []), *options, "--rank", rank]), None) for rank in range(ranks)]
    outcomes = stage.run_together(commands, DEADLINE_SECONDS)
    all_reduce(outcomes[0].output, "beeline_all_reduce")
    profile = profile_of(file)
    return CallRun(size, profile.calls(steps.ALL_REDUCE), profile)


def steps_table(runs):
    header = ["step", "per", *(f"{byte_count(run.size)}" for run in runs)]
    rows = []
    for end in (steps.SENDER, steps.RECEIVER):
        rows += [[f"{end}: {step.text}", step.per, *(number(run.instructions(step)) for run in runs)]
                 for step in steps.STEPS if step.end == end]
    rows.append(["packets that were sent twice", "run", *(str(run.sent_twice) for run in runs)])
    return table(header, rows)


def per_byte(runs, step):
    """From the next to largest to the largest message that is one packet."""
    small, large = sorted((run for run in runs if packets(run.size) == 1), key=lambda run: run.size)[-2:]
    least, most = small.instructions(step), large.instructions(step)
    return None if least is None or most is None else (most - least) / (large.size - small.size)


def per_byte_table(runs):
    return table(["step", "instructions per byte"],
                 [[f"{step.end}: {step.text}", number(per_byte(runs, step))] for step in steps.BY_THE_BYTE])


def calls_table(runs):
    rows = []
    for end in (steps.SENDER, steps.RECEIVER):
        for function in steps.SYSTEM_CALLS:
            counts = [run.calls(end, function) for run in runs]
            if any(counts):
                rows.append([end, f"`{function}`", *map(number, counts)])
    return table(["end", "function", *(byte_count(run.size) for run in runs)], rows)


def fingerprint_table(runs, sources):
    rows = []
    for ranks, run in runs:
        cost = run.fingerprints(sources)
        rows.append([f"all_reduce, {ranks} ranks, {byte_count(run.size)}", str(run.calls), number(cost),
                     f"at most {steps.FINGERPRINT_GOAL}", VERDICTS[cost <= steps.FINGERPRINT_GOAL]])
    return table(["call", "calls", "instructions per call", "goal", ""], rows)


def dearest_lines_table(runs, sources, count=8):
    """Where they go, with the most ranks."""
    ranks, run = runs[-1]
    costs = [(cost, *place) for place, cost in run.profile.lines.items() if sources.is_fingerprint(*place)]
    rows = []
    for cost, file, line in sorted(costs, reverse=True)[:count]:
        name = name_in_sources(file)
        rows.append([f"{name}:{line}", f"`{sources.line(name, line).strip()[:70]}`".replace("|", "\\|"), number(cost / run.calls)])
    return table(["line", f"all_reduce, {ranks} ranks, {byte_count(run.size)}", "instructions per call"], rows)


def missing(runs):
    """Steps whose functions are not there any more: steps.py has their names."""
    return [step.text for step in steps.STEPS if all(run.instructions(step) is None for run in runs)]

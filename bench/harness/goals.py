"""What is to be reached, as ratios within one run; pure functions of the results."""

from dataclasses import dataclass

from .cases import (BEELINE, CPU, GLOO, HOST, IDLE, IPERF3, LATENCY, MESSAGES, MTUS, OPEN_MPI, OPEN_MPI_YIELD, RAW, SIZES,
                    TORCH, TORCH_SIZES, WIRE, all_reduce_name, idle_name, on_wire, stream_name)
from .parse import byte_count
from .series import Spread


@dataclass(frozen=True)
class Goal:
    section: str
    text: str
    measured: Spread  # over the pairs; None: nothing to compare
    target: float
    at_least: bool  # or at most
    unit: str = "x"

    @property
    def reached(self):
        if self.measured is None:
            return None
        value = self.measured.median
        return value >= self.target if self.at_least else value <= self.target

    def as_json(self):
        return {"section": self.section, "goal": self.text, "target": self.target, "at_least": self.at_least,
                "unit": self.unit, "measured": self.measured and self.measured.as_json(), "reached": self.reached}


def faster(results, section, name, theirs, target, than):
    """How many times better Beeline is than the best of `theirs`, pair by pair."""
    case = results.get(section, name)
    if case is None:
        return []
    best = case.best_of(theirs)
    measured = Spread.of(case.advantages(BEELINE, best)) if best else None
    return [Goal(section, f"{name}: {than}", measured, target, at_least=True)]


def at_most(results, section, name, theirs, target, than):
    case = results.get(section, name)
    return [Goal(section, f"{name}: {than}", Spread.of(case.ratios(BEELINE, theirs)), target, at_least=False)] if case else []


def host_target(size):
    return 2.0 if size >= 128 << 20 else 1.5 if size >= 32 << 10 else 1.0


def host(results):
    goals = []
    for size in SIZES:
        goals += faster(results, HOST, all_reduce_name(2, size), OPEN_MPI, host_target(size), "times Open MPI's speed")
    for size in (8, 1 << 20):
        goals += faster(results, HOST, all_reduce_name(4, size), OPEN_MPI_YIELD, 1.0, "times Open MPI's speed, yielding")
    return goals


def torch(results):
    return [goal for size in TORCH_SIZES
            for goal in faster(results, TORCH, all_reduce_name(2, size), [GLOO], 4.0, "times gloo's speed")]


def wire(results):
    goals = []
    for mtu in MTUS:
        for size in MESSAGES:
            name = stream_name(mtu, size)
            goals += faster(results, WIRE, name, [IPERF3], 2.0, "times iperf3 TCP's speed")
            goals += faster(results, WIRE, name, [RAW], 0.6, "of raw UDP's speed")
        goals += at_most(results, WIRE, on_wire(mtu, LATENCY), RAW, 1.5, "times raw UDP's time")
        for size in TORCH_SIZES:
            if size == 4 or size >= 1 << 20:
                name = on_wire(mtu, f"PyTorch all_reduce, {byte_count(size)}")
                goals += faster(results, WIRE, name, [GLOO], 3.0, "times gloo's speed")
    return goals


def cpu(results):
    return [goal for mtu in MTUS for size in MESSAGES
            for goal in at_most(results, CPU, stream_name(mtu, size), IPERF3, 1.0, "times iperf3's CPU time per GB")]


# Less than the kernel's own housekeeping for a process that wakes up a few times a second.
IDLE_MS_PER_SECOND = 1.0


def idle(results):
    goals = []
    for lane in ("auto", "wire"):
        case = results.get(IDLE, idle_name(lane))
        if case:
            goals.append(Goal(IDLE, f"{case.name}: ms of CPU time per second", case.spread(BEELINE), IDLE_MS_PER_SECOND,
                              at_least=False, unit="ms"))
    return goals


def all_goals(results):
    return [goal for section in (host, torch, wire, cpu, idle) for goal in section(results)]

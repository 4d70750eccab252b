"""Measures both cards inside one guest whose clock counts instructions.

The guest has one processor, and a nanosecond of its clock is one instruction: of the kernel and of both
programs, the sender's and the receiver's. Each figure is the difference of two runs, of N and of 3 N
messages, divided by 2 N: what only happens once cancels.
"""
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import tempfile

from lab import Lab, LabError
from lab.image import Image

HERE = pathlib.Path(__file__).resolve().parent
LINK_MTU = 4200
TIMEOUT_S = 300
TICKS_AT_LEAST = 50


@dataclasses.dataclass(frozen=True)
class Test:
    """One line of the comparison. `messages` is N, in units of --messages."""
    title: str
    perf: str
    bytes: int
    depth: int
    messages: float
    mtus: tuple = (4096,)

    @property
    def ping_pong(self):
        return self.perf == "send_lat"


TESTS = (
    Test("64 KiB WRITE", "write_bw", 65536, 128, 1, (1024, 4096)),
    Test("64 KiB READ", "read_bw", 65536, 128, 1, (1024, 4096)),
    Test("64 KiB READ, 8 under way", "read_bw", 65536, 8, 1, (1024, 4096)),
    Test("2 B SEND, half a round trip", "send_lat", 2, 128, 2),
    Test("2 B SEND, 128 under way", "send_bw", 2, 128, 4),
    Test("2 B READ, one at a time", "read_lat", 2, 128, 2),
)
CARDS = ("rxe", "bee0")


@dataclasses.dataclass
class Run:
    """One run of both ends."""
    messages: int
    instructions: float
    user: int
    system: int
    idle: int
    switches: int
    packets: int
    dropped: int

    def __sub__(self, other):
        return Run(**{field.name: getattr(self, field.name) - getattr(other, field.name)
                      for field in dataclasses.fields(Run)})


def counters(output, when):
    found = re.search(rf"^counters {when} (.*)$", output, re.MULTILINE)
    if not found:
        raise LabError(f"a measurement gave no counters:\n{output[-2000:]}")
    words = [int(word) for word in found[1].split()]
    user, nice, system, idle, iowait, hard, soft = words[:7]
    switches, first, second, dropped = words[-4:]
    return {"user": user + nice, "system": system + hard + soft, "idle": idle + iowait, "switches": switches,
            "packets": first + second, "dropped": dropped}


def between(output):
    before, after = counters(output, "before"), counters(output, "after")
    return {name: after[name] - before[name] for name in before}


class Guest:
    """A lab of one guest with a cable in it, and at each end of that a card of the wanted kind."""

    def __init__(self, stack, program):
        share = stack.enter_context(tempfile.TemporaryDirectory(prefix="beeline-compare."))
        image = Image().prepare()
        module = next(image.folder.glob("modules/**/veth.ko"), None)
        tool = shutil.which("ip")
        if module is None or tool is None:
            raise LabError("the comparison needs the kernel's veth module and iproute2: scripts/setup --for-tests")
        for file in (module, HERE / "guest.sh"):
            shutil.copy(file, share)
        lab = stack.enter_context(Lab(icount=True, mtu=LINK_MTU, memory_mb=384, share=share, programs=[program, tool]))
        self._guest = lab.guest(0)
        self.kernel = self.sh("uname -r").strip()
        self.sh(f"cable {LINK_MTU} && kernels_cards")
        self._ends = ("rxe0", "rxe1")

    def sh(self, command):
        return self._guest.run(f"ip=/programs/bin/ip; . /share/guest.sh; {command}", timeout=TIMEOUT_S).check()

    def take_own_cards(self):
        """bee0 gets UDP port 4791 only when rxe is gone."""
        self.sh("no_kernels_cards")
        listed = self.sh("beeline devices")
        names = dict(re.findall(r"^(\S+) +(left|right) .*\bsoft\b", listed, re.MULTILINE))
        ends = {interface: device for device, interface in names.items()}
        if len(ends) != 2:
            raise LabError(f"no bee device at both ends of the cable:\n{listed}")
        self._ends = (ends["left"], ends["right"])

    def perf(self, test, mtu, messages, check=""):
        output = self.sh(f"perf {' '.join(self._ends)} {test.perf} {test.bytes} {mtu} {test.depth} {messages} {check}")
        return output, json.loads(output[output.index("\n{"):])["results"][0]

    def measure(self, test, mtu, messages):
        output, result = self.perf(test, mtu, messages)
        if "latency_us" in result:
            halves = 2 if test.ping_pong else 1
            nanoseconds = result["latency_us"]["average"] * 1e3 * messages * halves
            messages *= halves
        else:
            nanoseconds = messages / result["message_rate_Mpps"] * 1e3
        return Run(messages=messages, instructions=nanoseconds, **between(output))

    def check(self, test, mtu, messages):
        """Bytes that were compared; every one was right."""
        found = self.perf(test, mtu, messages, "--check")[1].get("check", {"bytes": 0, "wrong": 0})
        if found["wrong"] or not found["bytes"]:
            raise LabError(f"{test.title}: {found['bytes']} bytes checked, {found['wrong']} wrong")
        return found["bytes"]

    def perftest(self, test, mtu, messages):
        """Nanoseconds that perftest's ib_write_bw says it took."""
        output = self.sh(f"perftest {test.bytes} {mtu} {messages}")
        found = re.search(rf"^\s*{test.bytes}\s+{messages}\s+\S+\s+(\S+)", output, re.MULTILINE)
        if not found:
            raise LabError(f"ib_write_bw printed no result:\n{output[-2000:]}")
        return messages * test.bytes / (float(found[1]) * 2**20) * 1e9


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(test, pairs):
    """Figures per message, out of pairs of a short and a long run."""
    differences = [long - short for short, long in pairs]
    messages = sum(run.messages for run in differences)
    ticks = sum(run.user + run.system for run in differences)
    per_message = [run.instructions / run.messages for run in differences]
    return {
        "instructions_per_message": spread(per_message),
        "instructions_per_byte": spread([value / test.bytes for value in per_message]),
        # The same, out of each long run as a whole: far from the above where the cost is not proportional.
        "whole_run_per_message": spread([long.instructions / long.messages for _, long in pairs]),
        "packets_per_message": (sum(run.packets for pair in pairs for run in pair)
                                / sum(run.messages for pair in pairs for run in pair)),
        "switches_per_message": max(0, sum(run.switches for run in differences) / messages),
        # The kernel samples it, 100 times a second; a few samples say nothing.
        "user_share": max(0, sum(run.user for run in differences) / ticks) if ticks >= TICKS_AT_LEAST else None,
        "datagrams_dropped": sum(run.dropped for pair in pairs for run in pair),
        "runs": [[dataclasses.asdict(run) for run in pair] for pair in pairs],
    }


def measure_card(guest, card, plan, report):
    rows = []
    for test in TESTS:
        small = max(2, round(plan.messages * test.messages))
        for mtu in (value for value in test.mtus if value in plan.mtus):
            report(f"{card}: {test.title}, path MTU {mtu}")
            # First the check: it also brings the program's pages into memory.
            checked = guest.check(test, mtu, min(small, 64))
            pairs = [(guest.measure(test, mtu, small), guest.measure(test, mtu, 3 * small)) for _ in range(plan.runs)]
            rows.append({"card": card, "test": test.perf, "title": test.title, "bytes": test.bytes, "mtu_bytes": mtu,
                         "depth": test.depth, "messages": [small, 3 * small], "checked_bytes": checked,
                         **summary(test, pairs)})
    return rows


def cross_check(guest, plan, report):
    """The first test by perftest's own program on rxe, per message."""
    rows = []
    for mtu in plan.mtus:
        report(f"rxe: the same by perftest's ib_write_bw, path MTU {mtu}")
        small = max(5, plan.messages)
        values = [(guest.perftest(TESTS[0], mtu, 3 * small) - guest.perftest(TESTS[0], mtu, small)) / (2 * small)
                  for _ in range(plan.runs)]
        rows.append({"card": "rxe", "test": "ib_write_bw", "bytes": TESTS[0].bytes, "mtu_bytes": mtu,
                     "instructions_per_message": spread(values),
                     "instructions_per_byte": spread([value / TESTS[0].bytes for value in values])})
    return rows


@dataclasses.dataclass(frozen=True)
class Plan:
    program: str
    messages: int
    runs: int
    mtus: tuple
    perftest: bool


def compare(plan, report):
    with contextlib.ExitStack() as stack:
        guest = Guest(stack, plan.program)
        rows = measure_card(guest, "rxe", plan, report)
        perftest = cross_check(guest, plan, report) if plan.perftest else []
        guest.take_own_cards()
        rows += measure_card(guest, "bee0", plan, report)
        return {"version": 1, "kernel": guest.kernel, "processors": 1, "messages": plan.messages, "runs": plan.runs,
                "results": rows, "perftest": perftest}

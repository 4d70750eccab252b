"""Callgrind's files: which function executed how many instructions, and called which others how often.

The format is that of https://valgrind.org/docs/manual/cl-format.html, as far as callgrind itself writes it: one event
(Ir), names given once with a number and by the number from then on, lines relative to the one before."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from .stage import Failure

NAMED = re.compile(r"^(\w+)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"^(\+\d+|-\d+|\*|\d+) (\d+)$")
CALLS = re.compile(r"^calls=(\d+) ")
# What numbers its names on its own.
SPACES = {"ob": "object", "cob": "object", "fl": "file", "fi": "file", "fe": "file", "cfi": "file", "cfl": "file",
          "fn": "function", "cfn": "function"}


@dataclass
class Calls:
    count: int = 0
    instructions: int = 0  # with all that the callee calls


@dataclass
class Profile:
    own: dict = field(default_factory=lambda: defaultdict(int))  # function -> instructions of its own
    edges: dict = field(default_factory=lambda: defaultdict(lambda: defaultdict(Calls)))  # caller -> callee -> Calls
    lines: dict = field(default_factory=lambda: defaultdict(int))  # (file, line) -> instructions, inlined ones too

    @property
    def total(self):
        return sum(self.own.values())

    def functions(self, pattern):
        """Names that begin as `pattern` (a regular expression) says."""
        wanted = re.compile(pattern)
        known = set(self.own) | {callee for callees in self.edges.values() for callee in callees}
        return {name for name in known if wanted.match(name)}

    def calls(self, pattern):
        wanted = self.functions(pattern)
        return sum(calls.count for callees in self.edges.values() for callee, calls in callees.items() if callee in wanted)

    def whole(self, function):
        return self.own.get(function, 0) + sum(calls.instructions for calls in self.edges.get(function, {}).values())

    def below(self, root, stop):
        """(instructions of `root` with all that it calls, but for `stop` and what that calls; those of `stop`).

        Of a function that others call, too, the part is counted that belongs to these calls, by their share."""
        roots, stops = self.functions(root), self.functions(stop) if stop else set()
        received = defaultdict(float)  # function -> instructions of the calls from below the roots
        within = stopped = 0.0
        for function in self.order(roots, stops):
            whole = self.whole(function)
            # A root counts in full, whoever calls it; also another root, whose share is then not counted twice.
            share = 1.0 if function in roots else min(1.0, received[function] / whole) if whole else 0.0
            within += share * self.own.get(function, 0)
            for callee, calls in self.edges.get(function, {}).items():
                part = share * calls.instructions
                if callee in stops:
                    stopped += part
                else:
                    received[callee] += part
        return within, stopped

    def order(self, roots, stops):
        """What the roots reach without passing a stop, callers before callees (recursion aside)."""
        seen, done = set(), []
        for root in roots:
            path = [(root, iter(self.edges.get(root, ())))] if root not in seen else []
            seen.add(root)
            while path:
                function, callees = path[-1]
                following = next((callee for callee in callees if callee not in seen and callee not in stops), None)
                if following is None:
                    done.append(function)
                    path.pop()
                else:
                    seen.add(following)
                    path.append((following, iter(self.edges.get(following, ()))))
        return reversed(done)


class Reader:
    def __init__(self):
        self.profile = Profile()
        self.names = {"object": {}, "file": {}, "function": {}}
        self.now = {}  # key -> current name
        self.line = 0
        self.pending = None  # number of calls, when the next cost is that of a call

    def read(self, text):
        if not text.startswith("# callgrind format"):
            raise Failure("this is not a file of callgrind's")
        for line in text.splitlines():
            self.take(line)
        return self.profile

    def take(self, line):
        if named := NAMED.match(line):
            key, number, name = named.groups()
            if key in SPACES:
                self.name(key, self.resolve(SPACES[key], number, name))
        elif calls := CALLS.match(line):
            self.pending = int(calls.group(1))
        elif cost := COST.match(line):
            self.cost(cost.group(1), int(cost.group(2)))

    def resolve(self, space, number, name):
        if name is not None:
            self.names[space][number] = name
        return self.names[space].get(number, "???")

    def name(self, key, name):
        if key == "fn":
            # Its caller's file and object do not hold for what it calls.
            self.now["file"] = self.now.get("fl", "???")
            self.now["fn"] = self.unique(name, self.now.get("ob"))
        elif key == "cfn":
            self.now["cfn"] = self.unique(name, self.now.get("cob", self.now.get("ob")))
            self.now.pop("cob", None)
        else:
            self.now[key] = name
            if key in ("fl", "fi", "fe"):
                self.now["file"] = name

    @staticmethod
    def unique(name, object_file):
        """A function without a name is known by its address, which other files may have, too."""
        return f"{object_file}:{name}" if name.startswith("0x") else name

    def cost(self, position, instructions):
        self.line = self.line if position == "*" else (
            self.line + int(position) if position[0] in "+-" else int(position))
        function = self.now.get("fn", "???")
        if self.pending is None:
            self.profile.own[function] += instructions
            self.profile.lines[self.now.get("file", "???"), self.line] += instructions
            return
        calls = self.profile.edges[function][self.now.get("cfn", "???")]
        calls.count += self.pending
        calls.instructions += instructions
        self.pending = None


def read(text):
    return Reader().read(text)

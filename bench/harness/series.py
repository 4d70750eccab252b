"""Measurements in rounds, and what may be said of them: medians, ranges, and ratios pair by pair.

The machine is shared and its speed drifts, so two contenders are compared only within a round, where they ran one right
after the other; the ratio of two medians would compare different moments.
"""

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float

    @staticmethod
    def of(numbers):
        present = [number for number in numbers if number is not None]
        return Spread(median(present), min(present), max(present)) if present else None

    def as_json(self):
        return {"median": self.median, "least": self.least, "most": self.most}


@dataclass
class Case:
    """One question, with what each contender answered, a number per round (None: it gave none)."""

    section: str
    name: str
    unit: str
    less_is_better: bool
    samples: dict = field(default_factory=dict)

    def add(self, contender, number):
        self.samples.setdefault(contender, []).append(number)

    def spread(self, contender):
        return Spread.of(self.samples.get(contender, []))

    def advantages(self, ours, theirs):
        """Round by round, how many times better `ours` was."""
        pairs = zip(self.samples.get(ours, []), self.samples.get(theirs, []))
        return [their / our if self.less_is_better else our / their for our, their in pairs
                if our is not None and their is not None and our > 0 and their > 0]

    def ratios(self, ours, theirs):
        """Round by round, ours / theirs."""
        pairs = zip(self.samples.get(ours, []), self.samples.get(theirs, []))
        return [our / their for our, their in pairs if our is not None and their is not None and their > 0]

    def best_of(self, contenders):
        """The one with the best median, or None where none has answered."""
        answered = [(self.spread(name).median, name) for name in contenders if self.spread(name)]
        if not answered:
            return None
        return (min if self.less_is_better else max)(answered)[1]

    def as_json(self):
        spreads = {name: self.spread(name) for name in self.samples}
        return {"section": self.section, "name": self.name, "unit": self.unit, "less_is_better": self.less_is_better,
                "samples": self.samples,
                "spreads": {name: spread.as_json() for name, spread in spreads.items() if spread}}

    @staticmethod
    def from_json(value):
        return Case(value["section"], value["name"], value["unit"], value["less_is_better"], value["samples"])


class Results:
    """All cases of a run by (section, name), in the order in which they were defined. Only what is defined is kept."""

    def __init__(self):
        self.by_key = {}

    def define(self, section, name, unit, less_is_better):
        self.by_key[section, name] = Case(section, name, unit, less_is_better)

    def get(self, section, name):
        return self.by_key.get((section, name))

    def of(self, section):
        return [case for case in self.by_key.values() if case.section == section and case.samples]

    def as_json(self):
        return [case.as_json() for case in self.by_key.values() if case.samples]

    @staticmethod
    def from_json(values):
        results = Results()
        for case in map(Case.from_json, values):
            results.by_key[case.section, case.name] = case
        return results


@dataclass
class Contender:
    """One side of a comparison: `run` measures and returns {(section, case name): number}."""

    name: str
    answers: list  # the (section, case name) that it is to answer; where it does not, the round has no number
    run: object


def interleave(contenders, rounds, results, say, fail, forgive):
    """Runs every contender once per round, in turn: A B A B. A contender that fails (raises a `forgive`, whose `numbers` are
    what it has answered before) in two rounds running is left alone from then on; the others go on."""
    failures = {}
    for number in range(1, rounds + 1):
        for contender in contenders:
            numbers = {}
            if failures.get(contender.name, 0) < 2:
                say(f"round {number} of {rounds}: {contender.name}")
                try:
                    numbers = contender.run()
                    failures[contender.name] = 0
                except forgive as failure:
                    failures[contender.name] = failures.get(contender.name, 0) + 1
                    numbers = failure.numbers
                    fail(contender.name, str(failure))
            for key in contender.answers:
                if key in results.by_key:
                    results.by_key[key].add(contender.name, numbers.get(key))

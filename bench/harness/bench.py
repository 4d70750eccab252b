"""What every section has at hand."""

from dataclasses import dataclass, field

from . import network
from .series import Results, interleave
from .stage import Failure


@dataclass
class Settings:
    rounds: int
    sizes_up_to: int  # all_reduce sizes; the quick run leaves the largest out
    batch_seconds: float
    batches: int
    stream_seconds: float
    pings: int
    idle_seconds: float
    window_bytes: int
    pin: bool
    stock_buffers: bool
    sections: tuple

    def sizes(self, wanted):
        return [size for size in wanted if size <= self.sizes_up_to]


@dataclass
class Bench:
    stage: object
    settings: Settings
    programs: object
    peers: object
    say: object
    torch_python: str | None
    results: Results = field(default_factory=Results)
    failures: list = field(default_factory=list)
    place: network.Place | None = None

    def fail(self, who, why):
        line = f"{who}: {why}"
        if line not in self.failures:
            self.failures.append(line)
            self.say(f"failed: {line}")

    def tried(self, who, make):
        """What `make` gives; where it cannot, that is noted and the rest goes on."""
        try:
            return make()
        except Failure as failure:
            self.fail(who, str(failure))
            return None

    def privileges(self, words):
        """A command of ours on the wire; with --stock-buffers its receive buffers are what anybody may have."""
        return ["setpriv", "--bounding-set=-net_admin", *words] if self.settings.stock_buffers else words

    def wants(self, section):
        return section in self.settings.sections

    def compare(self, what, contenders):
        present = [contender for contender in contenders if contender is not None]
        interleave(present, self.settings.rounds, self.results, lambda line: self.say(f"{what}, {line}"),
                   lambda name, why: self.fail(f"{what}, {name}", why), Failure)

    def host(self):
        """One host, undisturbed by others where that can be had."""
        if self.place is None:
            self.place = network.one_host(self.stage) if network.reason_against() is None else network.HERE
        return self.place

"""What a process costs that has a device open, is connected, and has nothing to do."""

from ..cases import BEELINE, IDLE, idle_name
from ..parse import idleness
from ..series import Contender
from ..stage import free_port

RANKS = 2


def run(bench):
    place = bench.host()
    program = bench.programs.beeline_all_reduce()

    def contender(lane):
        key = IDLE, idle_name(lane)
        bench.results.define(*key, "ms/s", less_is_better=True)

        def measure():
            rendezvous = f"{place.address}:{free_port()}"
            commands = [(place.words([program, "--rank", rank, "--size", RANKS, "--rendezvous", rendezvous,
                                      "--idle", bench.settings.idle_seconds]), {"BEELINE_LANE": lane}) for rank in range(RANKS)]
            outcomes = bench.stage.run_together(commands, bench.settings.idle_seconds + 60)
            return {key: max(idleness(outcome.output) for outcome in outcomes)}

        return Contender(BEELINE, [key], measure)

    for lane in ("auto", "wire"):
        bench.compare(f"idle, lane {lane}", [contender(lane)])

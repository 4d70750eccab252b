"""Starting the all_reduce programs. Every contender runs the same loop over the same sizes; nothing is pinned, or
everything is (--pin)."""

import contextlib

from ..cases import TORCH, all_reduce_name
from ..parse import all_reduce
from ..series import Contender
from ..stage import Failure, free_port

DEADLINE_SECONDS = 240

# malloc kept off mmap: Open MPI's temporaries are otherwise unmapped after every call, and fresh pages come at a price.
TRIM_FIX = {"MALLOC_MMAP_MAX_": "0", "MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}


def loop_options(bench, sizes):
    settings = bench.settings
    return ["--sizes", ",".join(map(str, sizes)), "--batch-seconds", settings.batch_seconds, "--batches", settings.batches,
            *(["--pin"] if settings.pin else [])]


def answers(section, whose, name, start):
    """{(section, case name): microseconds} of the first of the processes that `start` runs; if it fails at some size, the
    sizes before count."""
    def numbers(text):
        return {(section, name(size)): microseconds for size, microseconds in all_reduce(text, whose).items()}

    try:
        return numbers(start())
    except Failure as failure:
        with contextlib.suppress(Failure):
            failure.numbers = numbers(failure.output)
        raise


def beeline(bench, section, place, ranks, sizes, name):
    program = bench.programs.beeline_all_reduce()

    def start():
        rendezvous = f"{place.address}:{free_port()}"
        commands = [(place.words([program, "--rank", rank, "--size", ranks, "--rendezvous", rendezvous,
                                  *loop_options(bench, sizes)]), None) for rank in range(ranks)]
        return bench.stage.run_together(commands, DEADLINE_SECONDS)[0].output

    return Contender("Beeline", [(section, name(size)) for size in sizes],
                     lambda: answers(section, "beeline_all_reduce", name, start))


def open_mpi(bench, section, place, ranks, sizes, label, transport, extra=()):
    """Two contenders: with malloc as it is, and with the trim fix."""
    bench.peers.require("mpirun", "mpicxx")
    program = bench.programs.mpi_all_reduce()
    name = lambda size: all_reduce_name(ranks, size)  # noqa: E731

    def contender(variant, variables):
        exports = [word for variable, value in variables.items() for word in ("-x", f"{variable}={value}")]
        words = ["mpirun", "--allow-run-as-root", "-np", ranks, "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1",
                 *transport, *extra, *exports, program, *loop_options(bench, sizes)]

        return Contender(variant, [(section, name(size)) for size in sizes], lambda: answers(
            section, "mpi_all_reduce", name, lambda: bench.stage.run(place.words(words), deadline=DEADLINE_SECONDS).output))

    return [contender(label, {}), contender(f"{label}, trim fix", TRIM_FIX)]


def torch(bench, section, backend, label, places, sizes, name):
    """One rank per place; the same script whatever the backend."""
    script = bench.programs.root / "bench" / "programs" / "torch_all_reduce.py"
    settings = bench.settings

    def start():
        rendezvous = f"{places[0].address}:{free_port()}"
        commands = []
        for rank, place in enumerate(places):
            environment = {"PYTHONPATH": str(bench.programs.build / "python"), "PYTHONDONTWRITEBYTECODE": "1",
                           "GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1",
                           **({"BEELINE_LANE": "wire"} if section != TORCH else {})}
            words = [bench.torch_python, "-W", "ignore", script, "--backend", backend, "--rank", rank, "--size", len(places),
                     "--rendezvous", rendezvous, "--sizes", ",".join(map(str, sizes)),
                     "--batch-seconds", settings.batch_seconds, "--batches", settings.batches]
            commands.append((place.words(bench.privileges(words)), environment))
        return bench.stage.run_together(commands, DEADLINE_SECONDS)[0].output

    return Contender(label, [(section, name(size)) for size in sizes],
                     lambda: answers(section, f"{label} through PyTorch", name, start))

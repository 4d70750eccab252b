"""One host, C++ API, against Open MPI."""

from ..cases import HOST, OPEN_MPI, OPEN_MPI_TCP, OPEN_MPI_YIELD, SIZES, YIELD_SIZES, all_reduce_name
from . import all_reduce

SHARED_MEMORY = ["--mca", "btl", "self,vader"]
TCP = ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]


def define(bench, ranks, sizes):
    for size in sizes:
        bench.results.define(HOST, all_reduce_name(ranks, size), "us", less_is_better=True)


def run(bench):
    place = bench.host()
    sizes = bench.settings.sizes(SIZES)
    define(bench, 2, sizes)
    define(bench, 4, YIELD_SIZES)

    def ours(ranks, wanted):
        return bench.tried("Beeline", lambda: all_reduce.beeline(bench, HOST, place, ranks, wanted,
                                                                lambda size: all_reduce_name(ranks, size)))

    def theirs(ranks, wanted, label, transport, extra=()):
        return bench.tried("Open MPI", lambda: all_reduce.open_mpi(bench, HOST, place, ranks, wanted, label, transport,
                                                                  extra)) or []

    bench.compare("one host, 2 ranks", [ours(2, sizes), *theirs(2, sizes, OPEN_MPI[0], SHARED_MEMORY),
                                        *theirs(2, sizes, OPEN_MPI_TCP[0], TCP)])
    yielding = ["--mca", "mpi_yield_when_idle", "1"]
    bench.compare("one host, 4 ranks", [ours(4, YIELD_SIZES),
                                        *theirs(4, YIELD_SIZES, OPEN_MPI_YIELD[0], SHARED_MEMORY, yielding)])

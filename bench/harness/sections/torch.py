"""One host, through PyTorch, against gloo."""

from ..cases import BEELINE, GLOO, TORCH, TORCH_SIZES, all_reduce_name
from . import all_reduce


def run(bench):
    if bench.torch_python is None:
        return  # why, has been said
    place = bench.host()
    sizes = bench.settings.sizes(TORCH_SIZES)
    name = lambda size: all_reduce_name(2, size)  # noqa: E731
    for size in sizes:
        bench.results.define(TORCH, name(size), "us", less_is_better=True)
    bench.compare("PyTorch", [all_reduce.torch(bench, TORCH, backend, label, [place, place], sizes, name)
                              for backend, label in (("beeline", BEELINE), ("gloo", GLOO))])

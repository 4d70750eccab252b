"""The programs of bench/programs, built when they are needed, kept in the user's cache under a name that says of what."""

import hashlib
import os
from pathlib import Path

from .stage import Failure

SOURCES = Path(__file__).resolve().parent.parent / "programs"
FLAGS = ["-std=c++20", "-O2", "-g", "-Wall", "-Wextra"]


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beeline" / "bench"


def digest(words, sources):
    sum_of_all = hashlib.sha256("\0".join(map(str, words)).encode())
    for source in sources:
        sum_of_all.update(source.read_bytes())
    return sum_of_all.hexdigest()[:16]


def built(stage, name, compiler, flags):
    """The path of program `name`, compiled unless it is there."""
    source = SOURCES / f"{name}.cc"
    # Given as words and not as a shell would take them: flags behind the source, for libraries must follow.
    words = [compiler, *FLAGS, source, *flags]
    program = cache() / f"{name}-{digest(words, [source, SOURCES / 'all_reduce.h'])}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")
        stage.run([*words, "-o", fresh], deadline=300)
        os.replace(fresh, program)
    return program


class Programs:
    def __init__(self, stage, root, build):
        self.stage, self.root, self.build = stage, root, build

    @property
    def beeline(self):
        program = self.build / "bin" / "beeline"
        if not program.exists():
            raise Failure(f"{program} is missing (scripts/build makes it; --build names another folder)")
        return program

    def compiler(self):
        return os.environ.get("CXX", "c++")

    def raw_udp(self):
        return built(self.stage, "raw_udp", self.compiler(), [])

    def beeline_all_reduce(self):
        library = self.build / "lib"
        if not (library / "libbeeline.so").exists():
            raise Failure(f"{library}/libbeeline.so is missing (scripts/build makes it; --build names another folder)")
        return built(self.stage, "beeline_all_reduce", self.compiler(),
                     [f"-I{self.root / 'include'}", f"-L{library}", "-lbeeline", f"-Wl,-rpath,{library}"])

    def mpi_all_reduce(self):
        return built(self.stage, "mpi_all_reduce", "mpicxx", ["-DOMPI_SKIP_MPICXX"])

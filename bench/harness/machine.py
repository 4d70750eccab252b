"""Where the numbers were measured: what a reader needs to judge them."""

import contextlib
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


def first_line(*words):
    """Of what a program says; None if it is not there."""
    if shutil.which(words[0]) is None:
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        said = (done.stdout or done.stderr).strip().splitlines()
        return said[0].strip() if done.returncode == 0 and said else None
    return None


def contents(path):
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return None


def processor():
    found = re.search(r"^model name\s*:\s*(.+)$", contents("/proc/cpuinfo") or "", re.MULTILINE)
    return found.group(1) if found else platform.machine()


def memory_GiB():
    found = re.search(r"^MemTotal:\s*(\d+) kB", contents("/proc/meminfo") or "", re.MULTILINE)
    return round(int(found.group(1)) / (1 << 20), 1) if found else None


def source_of(build):
    """The source tree that a build folder was made from."""
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", contents(build / "CMakeCache.txt") or "", re.MULTILINE)
    return found.group(1) if found else None


def commit_of(build):
    source = source_of(build)
    return first_line("git", "-C", source, "describe", "--always", "--dirty", "--abbrev=12") if source else None


def environment(build, torch_python=None):
    return {
        "kernel": platform.release(),
        "system": (re.search(r'^PRETTY_NAME="(.+)"', contents("/etc/os-release") or "", re.MULTILINE) or [None, None])[1],
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_GiB": memory_GiB(),
        "load_at_start": os.getloadavg()[0],
        "transparent_hugepages": contents("/sys/kernel/mm/transparent_hugepage/enabled"),
        "rmem_max": contents("/proc/sys/net/core/rmem_max"),
        "tcp_congestion_control": contents("/proc/sys/net/ipv4/tcp_congestion_control"),
        "yama_ptrace_scope": contents("/proc/sys/kernel/yama/ptrace_scope"),
        "beeline": first_line(str(build / "bin" / "beeline"), "--version"),
        "commit": commit_of(build),
        "compiler": first_line(os.environ.get("CXX", "c++"), "--version"),
        "open_mpi": first_line("mpirun", "--version"),
        "iperf3": first_line("iperf3", "--version"),
        "torch": torch_python and first_line(torch_python, "-c", "from importlib import metadata; print(metadata.version('torch'))"),
        "variables": {name: value for name, value in sorted(os.environ.items())
                      if name.startswith(("BEELINE_", "OMPI_MCA_", "GLOO_", "MALLOC_"))},
    }


def in_one_line(values):
    return (f"{values['processor']}, {values['cores']} cores, {values['memory_GiB']} GiB, kernel {values['kernel']}, "
            f"load {values['load_at_start']:.1f} at the start, commit {values['commit'] or 'unknown'}")

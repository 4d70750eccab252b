"""The programs that Beeline is compared with, found or installed. What cannot be had is one line in the report."""

import os
import shutil
import subprocess
from dataclasses import dataclass

from .stage import Failure

# program -> Debian packages that bring it
PACKAGES = {
    "iperf3": ["iperf3"],
    "mpirun": ["openmpi-bin"],
    "mpicxx": ["openmpi-bin", "libopenmpi-dev"],
    "nft": ["nftables"],
    "ip": ["iproute2"],
    "ethtool": ["ethtool"],
    "valgrind": ["valgrind"],
}


@dataclass
class Peers:
    """Looks each program up once."""

    stage: object
    say: object
    may_install: bool

    def __post_init__(self):
        self.found = {}
        self.lists_are_fresh = False

    def require(self, *programs):
        """A Failure names the first one that is missing."""
        for program in programs:
            if program not in self.found:
                self.found[program] = self.look_up(program)
            if self.found[program] is not None:
                raise Failure(self.found[program])

    def look_up(self, program):
        """None if it is there, or why not."""
        if shutil.which(program):
            return None
        packages = " ".join(PACKAGES[program])
        if not self.may_install:
            return f"{program} is missing (apt-get install {packages}, or leave --no-install out)"
        if os.geteuid() != 0 and not shutil.which("sudo"):
            return f"{program} is missing, and installing it takes root (apt-get install {packages})"
        if not shutil.which("apt-get"):
            return f"{program} is missing, and this is not Debian or a relative of it: install what {packages} contains"
        try:
            self.install(PACKAGES[program])
        except Failure as failure:
            return f"{program} is missing and could not be installed: {failure}"
        return None if shutil.which(program) else f"{program} is missing although {packages} is installed"

    def install(self, packages):
        self.say(f"installing {' '.join(packages)}")
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        # Old package lists name files that the mirrors no longer have.
        if not self.lists_are_fresh:
            self.stage.run([*as_root, "apt-get", "-q", "update"], deadline=300)
            self.lists_are_fresh = True
        self.stage.run([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "install", "-y",
                        "--no-install-recommends", *packages], deadline=600)


def torch_python(root, build):
    """The Python that has the PyTorch which the plugin in `build` was made for."""
    done = subprocess.run([root / "scripts/support/torch-python"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure("PyTorch is missing (scripts/setup installs it, then scripts/build makes the plugin)")
    if not any((build / "python" / "beeline").glob("_torch*.so")):
        raise Failure(f"{build}/python has no PyTorch plugin (scripts/build makes it)")
    return done.stdout.strip()

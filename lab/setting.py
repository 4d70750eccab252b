"""A lab: a network namespace with a bridge, the host's end of it, and guests on it.

The namespace has no name: it lives while this process, or a program in it, holds it, so that
nothing is left when they die. The host's own network is not touched.
"""
import atexit
import collections
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from lab.accelerator import choose
from lab.capture import Capture
from lab.damage import Damage
from lab.errors import LabError
from lab.guest import BOOT_TIMEOUT_S, Guest
from lab.image import Image, run, shared_libraries
from lab.running import HostProgram

TOOLS = ("qemu-system-x86_64", "busybox", "cpio", "ip", "ethtool", "tcpdump", "unshare", "nsenter", "setpriv",
         "ib_write_bw", "ibv_rc_pingpong", "apt-get", "dpkg")
Settings = collections.namedtuple("Settings", "guests mtu smp memory_mb share icount accelerator")


def reason_against():
    """Why no lab can run here, in a sentence; None when one can."""
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        return f"{', '.join(missing)} not installed (scripts/setup --for-tests does that)"
    if os.geteuid() != 0:
        return "the lab makes a network namespace and TAP devices, which takes root"
    probe = subprocess.run(["unshare", "--net", "ip", "tuntap", "add", "dev", "t", "mode", "tap"], capture_output=True,
                           text=True, check=False)
    if probe.returncode:
        return f"no network namespace with a TAP device can be made here: {probe.stderr.strip()}"
    return None


def open_namespace():
    """A descriptor of a new network namespace."""
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; read -r _"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    try:
        if holder.stdout.readline() != b"made\n":
            raise LabError("unshare --net failed")
        return os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        holder.communicate()


# $1: the temporary folder, $2: the namespace, which nobody else can be in. The second look finds what
# was just being started.
CLEAN = """
read -r _
for look in 1 2; do
  find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/net' -lname "$2" |
    while IFS=/ read -r _ _ process _; do kill -KILL "$process"; done
  sleep 0.1
done
i=0
while ! rm -rf "$1" && [ $i -lt 20 ]; do i=$((i + 1)); sleep 0.1; done
"""


class Janitor:
    """A child that ends what is left in the namespace and removes the temporary folder: when we close
    it, and also when we die. It holds the namespace, so that its number cannot become another's."""

    def __init__(self, folder, namespace):
        self.process = subprocess.Popen(
            ["sh", "-c", CLEAN, "sh", folder, os.readlink(f"/proc/self/fd/{namespace}")], stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL, pass_fds=[namespace], start_new_session=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Lab:
    """See the top of lab/__init__.py."""

    def __init__(self, guests=1, mtu=1500, smp=1, memory_mb=256, share=None, programs=(), icount=False, damage=None,
                 shell=False, report=None):
        if why := reason_against():
            raise LabError(why)
        if not 1 <= guests <= 64 or not 1280 <= mtu <= 9000:
            raise LabError(f"a lab has 1 to 64 guests and an MTU from 1280 to 9000, not {guests} and {mtu}")
        if share is not None and not os.path.isdir(share):
            raise LabError(f"the folder to share, {share}, does not exist")
        self.ipv4, self.ipv6 = "10.77.0.1", "fd77::1"
        self._shell = shell
        self._image = Image(report or (lambda text: print(text, file=sys.stderr))).prepare()
        self._settings = Settings(guests, mtu, smp, memory_mb, share and os.path.abspath(share), icount,
                                  choose(self._image))
        self._programs_wanted, self._damage_wanted = programs, damage
        self._namespace = None
        self._host_programs = []
        self._guests = []
        self._damage = None

    def __enter__(self):
        self._namespace = open_namespace()
        self._folder = tempfile.mkdtemp(prefix="beeline-lab.")
        self._janitor = Janitor(self._folder, self._namespace)
        atexit.register(self.close)
        try:
            self._collect_programs()
            self._make_network()
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends everything; more than once does no harm."""
        atexit.unregister(self.close)
        for guest in self._guests:
            guest.power_off()
        for program in self._host_programs:
            program.kill()
            with contextlib.suppress(LabError):
                program.wait(10)
        self._host_programs.clear()
        if self._damage:
            self._damage.close()
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None
        self._janitor.close()

    def in_namespace(self, command):
        """A command that runs in the namespace and dies with us."""
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{os.getpid()}/fd/{self._namespace}",
                *map(str, command)]

    def host(self, *command, timeout=60, env=None, on_output=None):
        program = self.host_start(*command, timeout=timeout, env=env, on_output=on_output)
        return program.wait()

    def host_start(self, *command, timeout=60, env=None, on_output=None):
        self._host_programs = [program for program in self._host_programs if not program.ended]
        program = HostProgram(self.in_namespace(command), "host: " + " ".join(map(str, command))[:200], timeout,
                              env={**os.environ, **(env or {})}, on_output=on_output)
        self._host_programs.append(program)
        return program

    def guest(self, number):
        return self._guests[number]

    @property
    def guests(self):
        return tuple(self._guests)

    @property
    def accelerator(self):
        return self._settings.accelerator

    def capture(self, path, on="br0", filter="udp port 4791"):
        return Capture(self, path, on, filter)

    def set_damage(self, **percentages):
        if not self._damage:
            raise LabError("this lab has no damage forwarder: Lab(damage=dict(seed=1))")
        self._damage.set(**percentages)

    def damage_counts(self):
        if not self._damage:
            raise LabError("this lab has no damage forwarder: Lab(damage=dict(seed=1))")
        return self._damage.counts()

    def _ip(self, *words):
        run(*self.in_namespace(["ip", *words]))

    def _bridge(self, name):
        self._ip("link", "add", name, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
        self._ip("link", "set", name, "mtu", str(self._settings.mtu), "up")

    def _make_network(self):
        """br0 with the host's end; guest 0 behind the damage forwarder, on br1, where there is one."""
        mtu = str(self._settings.mtu)
        for what in ("all", "default"):
            run(*self.in_namespace(["sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{what}/accept_ra"]))
        self._ip("link", "set", "lo", "up")
        self._bridge("br0")
        if self._damage_wanted is not None:
            self._bridge("br1")
            for near, far, bridge in (("near0", "near1", "br0"), ("far0", "far1", "br1")):
                self._ip("link", "add", near, "mtu", mtu, "type", "veth", "peer", "name", far, "mtu", mtu)
                self._ip("link", "set", near, "master", bridge, "up")
                self._ip("link", "set", far, "up")
        for number in range(self._settings.guests):
            behind = number == 0 and self._damage_wanted is not None
            self._ip("tuntap", "add", "dev", f"tap{number}", "mode", "tap")
            self._ip("link", "set", f"tap{number}", "mtu", mtu, "master", "br1" if behind else "br0", "up")
        self._ip("addr", "add", f"{self.ipv4}/24", "dev", "br0")
        self._ip("addr", "add", f"{self.ipv6}/64", "dev", "br0", "nodad")
        # A capture on the bridge shows what a cable would: the kernel cuts GSO packets before it.
        run(*self.in_namespace(["ethtool", "-K", "br0", "tx-udp-segmentation", "off", "tso", "off"]))
        if self._damage_wanted is not None:
            for end in ("near0", "near1", "far0", "far1"):
                # A frame at the forwarder is whole, with its checksum, and one packet.
                run(*self.in_namespace(["ethtool", "-K", end, "tx", "off", "gso", "off", "tso", "off", "gro", "off"]))
            self._damage = Damage(self.in_namespace, **self._damage_wanted)

    def _collect_programs(self):
        """Programs of ours and all that they need, in a folder for the guests."""
        folder = pathlib.Path(self._folder, "programs")
        for name in ("bin", "lib"):
            (folder / name).mkdir(parents=True)
        for file in map(pathlib.Path, self._programs_wanted):
            if not file.is_file():
                raise LabError(f"the program {file} does not exist")
            self._place(file, folder / ("lib" if ".so" in file.name else "bin"))
            for library in shared_libraries(file):
                # The loader's place is fixed, and the guest has it there.
                if not pathlib.Path(library).name.startswith("ld-linux"):
                    self._place(pathlib.Path(library), folder / "lib")

    @staticmethod
    def _place(file, folder):
        target = folder / file.name
        if not target.exists():
            shutil.copy(os.path.realpath(file), target)

    def _boot(self):
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        for number in range(self._settings.guests):
            guest = Guest(number, pathlib.Path(self._folder, "programs"), self._folder)
            self._guests.append(guest)
            guest.boot(self._image, self._settings, self.in_namespace, self._shell)
        if not self._shell:
            for guest in self._guests:
                guest.wait_until_ready(deadline)

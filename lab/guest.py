"""One emulated machine: starts qemu, runs commands in it."""
import base64
import pathlib
import queue
import secrets
import select
import socket
import subprocess
import threading
import time

from lab.errors import LabError
from lab.running import TIMED_OUT, Running

COMMANDS_AT_ONCE = 8
BOOT_TIMEOUT_S = 120
# Its own port, so that a command can be killed while all others are busy.
PORTS = COMMANDS_AT_ONCE + 1


def qemu_command(image, guest, settings, ports, console):
    """The command line of the emulator."""
    words = [
        f"console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable no_timer_check mitigations=off audit=0 net.ifnames=0 "
        f"lab.guest={guest.number} lab.guests={settings.guests} lab.ipv4={guest.ipv4} lab.ipv6={guest.ipv6} "
        f"lab.mtu={settings.mtu}"
    ]
    command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-machine", "q35", "-smp", str(settings.smp), "-m", str(settings.memory_mb),
               "-kernel", str(image.kernel), "-initrd", str(image.initramfs)]
    if settings.icount:
        # Time is what the guest has executed: the same in every run, to a few per cent.
        command += ["-cpu", "max", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off",
                    "-rtc", "clock=vm,base=2026-01-01T00:00:00"]
    else:
        command += ["-cpu", "max", "-accel", settings.accelerator]
    command += ["-netdev", f"tap,id=net,ifname={guest.tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=net,mac={guest.mac},host_mtu={settings.mtu}"]
    shares = {"programs": (guest.programs, ",readonly=on")}
    if settings.share:
        shares["share"] = (settings.share, "")
        words.append("lab.share=1")
    for tag, (folder, mode) in shares.items():
        command += ["-fsdev", f"local,id={tag},path={folder},security_model=none,multidevs=remap{mode}",
                    "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    command += ["-device", f"virtio-serial-pci,max_ports={PORTS + 1}"]
    for number, port in enumerate(ports):
        command += ["-chardev", f"socket,id=port{number},fd={port.fileno()}",
                    "-device", f"virtserialport,chardev=port{number},name=lab.{number}"]
    if console is None:
        command += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
        words.append("lab.shell=1")
    else:
        command += ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
    return [*command, "-append", " ".join(words)]


class Guest:
    """Addresses and commands of a guest; made by Lab."""

    def __init__(self, number, programs, folder):
        self.number = number
        self.ipv4, self.ipv6 = f"10.77.0.{number + 2}", f"fd77::{number + 2:x}"
        self.mac, self.tap = f"52:54:00:77:00:{number + 2:02x}", f"tap{number}"
        self.programs = programs
        self._ports = ()
        self._console = pathlib.Path(folder, f"console{number}")
        self._free = queue.SimpleQueue()
        self.process = None

    def boot(self, image, settings, in_namespace, shell=False):
        ours, theirs = zip(*(socket.socketpair() for _ in range(PORTS)))
        try:
            command = qemu_command(image, self, settings, theirs, None if shell else self._console)
            self.process = subprocess.Popen(in_namespace(command), stdin=None if shell else subprocess.DEVNULL,
                                            stdout=None if shell else subprocess.PIPE,
                                            stderr=None if shell else subprocess.STDOUT,
                                            pass_fds=[port.fileno() for port in theirs])
        finally:
            for port in theirs:
                port.close()
        self._ports = ours
        self._killer = ours[-1]
        self._killer_lock = threading.Lock()
        for port in ours[:-1]:
            self._free.put(port)

    def wait_until_ready(self, deadline):
        left = max(1, deadline - time.monotonic())
        try:
            self.start("true", left).wait(left).check()
        except LabError as problem:
            raise LabError(f"guest {self.number} did not boot within {BOOT_TIMEOUT_S} s ({problem})\n"
                           f"{self.console_tail()}") from None
        if "lab: rxe0 could not be added" in self.console():
            raise LabError(f"guest {self.number} has no rxe0\n{self.console_tail()}")

    def console(self):
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def console_tail(self):
        """The end of the console, for messages."""
        said = ""
        if self.process and self.process.poll() is not None:
            said = f"qemu ended with status {self.process.returncode}: {self.process.stdout.read().decode(errors='replace')}\n"
        lines = self.console().splitlines()[-25:]
        return said + f"console of guest {self.number}:\n" + "\n".join(f"  | {line}" for line in lines)

    def gid(self, version):
        """Index of rxe0's GID for the IPv4 or IPv6 address."""
        return int(self.run(f"lab-gid {version}").check())

    def run(self, command, timeout=60, on_output=None):
        return self.start(command, timeout, on_output).wait()

    def start(self, command, timeout=60, on_output=None):
        try:
            port = self._free.get_nowait()
        except queue.Empty:
            raise LabError(f"guest {self.number} runs {COMMANDS_AT_ONCE} commands already, the most it can") from None
        return GuestProgram(self, port, command, timeout, on_output)

    def _give_back(self, port):
        self._free.put(port)

    def signal(self, pid, name):
        """Sends a signal to a process group of the guest."""
        with self._killer_lock:
            answer = _Exchange(self._killer, f"kill -{name} -{pid}")
            answer.finish(self, 20)

    def power_off(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            for port in self._ports:
                port.close()
            if self.process.stdout:
                self.process.stdout.close()


class _Exchange:
    """One request over a port, and its answer piece by piece (the protocol is in lab/init)."""

    def __init__(self, port, command):
        self.port, self.pid, self.status = port, None, None
        self._marker = secrets.token_hex(12).encode()
        self._pending = b""
        port.settimeout(30)
        port.sendall(b"%s %s\n" % (self._marker, base64.b64encode(command.encode())))

    def receive(self, wait_s):
        """More output, b"" when nothing came in time, None at the end of the answer."""
        if not select.select([self.port], [], [], wait_s)[0]:
            return b""
        data = self.port.recv(65536)
        if not data:
            raise LabError("the guest is gone")
        self._pending += data
        return self._digest()

    def _digest(self):
        out = b""
        while True:
            at = self._pending.find(self._marker)
            if at < 0:
                keep = self._start_of_marker()
                out += self._pending[:len(self._pending) - keep]
                self._pending = self._pending[len(self._pending) - keep:]
                return out
            end = self._pending.find(b"\n", at)
            out += self._pending[:at]
            if end < 0:
                self._pending = self._pending[at:]
                return out
            number = int(self._pending[at:end].split()[1])
            self._pending = self._pending[end + 1:]
            if self.pid is None:
                self.pid = number
            else:
                self.status = number
                return out

    def _start_of_marker(self):
        """How many bytes at the end may be the beginning of the marker."""
        for size in range(min(len(self._marker), len(self._pending)), 0, -1):
            if self._marker.startswith(self._pending[-size:]):
                return size
        return 0

    def finish(self, guest, seconds):
        end = time.monotonic() + seconds
        while self.status is None:
            self.receive(0.2)
            if time.monotonic() > end:
                raise LabError(f"guest {guest.number} does not answer\n{guest.console_tail()}")


class GuestProgram(Running):
    """A shell command that runs in a guest."""

    def __init__(self, guest, port, command, timeout, on_output):
        super().__init__(f"guest {guest.number}: {command[:200]}", timeout, on_output)
        self._guest, self._port = guest, port
        self._exchange = _Exchange(port, command)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        end, late = time.monotonic() + self.timeout, False
        try:
            while self._exchange.status is None:
                left = end - time.monotonic()
                if left <= 0:
                    if late or self._exchange.pid is None:
                        raise LabError("the guest does not answer")
                    late, end = True, time.monotonic() + 20
                    self._guest.signal(self._exchange.pid, "KILL")
                else:
                    self._grow(self._exchange.receive(min(left, 1.0)))
            self._guest._give_back(self._port)
            self._end(TIMED_OUT if late else self._exchange.status)
        except (LabError, OSError, ValueError) as problem:
            self._end(problem=f"{problem}\n{self._guest.console_tail()}")

    def kill(self, signal="KILL"):
        """Sends a signal to the command and all its children."""
        end = time.monotonic() + 20
        while self._exchange.pid is None and not self.ended:
            if time.monotonic() > end:
                raise LabError(f"{self.name}: not even started")
            time.sleep(0.02)
        if not self.ended:
            self._guest.signal(self._exchange.pid, signal)


"""Where programs of these tests run: this host, or two network namespaces with a cable between them."""

import atexit
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
BEELINE = BUILD / "bin/beeline"
PRELOAD = BUILD / "lib/libbeeline-preload.so"
STEP_S = 120  # for one program; machines may be slow and busy


def run(*words, timeout=STEP_S, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, **options)


def on_card(*words):
    return [str(BEELINE), "run", "--", *(str(word) for word in words)]


class Program:
    """A program that runs beside the test. Its output is in a file, so that it never blocks on it."""

    def __init__(self, words, env=None):
        self.words = words
        self.file = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT,
                                        start_new_session=True, env=env)

    def wait(self, timeout=STEP_S):
        """Its exit status; None when it had to be ended."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self, number=signal.SIGKILL):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass
        self.process.wait()

    def __del__(self):
        self.file.close()

    def output(self):
        self.file.seek(0)
        return self.file.read()

    def listens(self, port):
        """Whether somebody in its network namespace listens on the TCP port."""
        try:
            tables = [Path(f"/proc/{self.process.pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        except OSError:
            return False
        return any(re.search(rf":{port:04X} \S+ 0A ", table) for table in tables)

    def await_listening(self, port, timeout=STEP_S):
        end = time.monotonic() + timeout
        while not self.listens(port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.words} does not listen on {port}:\n{self.output()}")
            time.sleep(0.02)

    def await_text(self, text, times=1, timeout=STEP_S):
        end = time.monotonic() + timeout
        while self.output().count(text) < times:
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.words} did not say {text!r} {times} times:\n{self.output()}")
            time.sleep(0.02)


TCP, UDP = 0x0106, 0x0111  # port spaces of the connection manager


def await_service(server, space, port):
    """A listener has a name in its network namespace, and listens on it (port/udp/service.h)."""
    name = f"@beeline.4791.service.{space << 16 | port:016x}"
    listens = re.compile(rf" 00010000 \w+ \w+ +\d+ {name}$", re.MULTILINE)  # the flag __SO_ACCEPTCON
    end = time.monotonic() + STEP_S
    while not listens.search(Path(f"/proc/{server.process.pid}/net/unix").read_text()):
        assert server.process.poll() is None, server.output()
        assert time.monotonic() < end, f"nobody listens on {name}\n{server.output()}"
        time.sleep(0.02)


class Namespace:
    """A network namespace of a test's own, with lo up: as root, or as anybody whom the kernel lets."""

    def __init__(self):
        root = os.geteuid() == 0
        words = ["unshare", *([] if root else ["-r"]), "-n", "sh", "-c", "ip link set lo up && echo ready; exec sleep 3600"]
        self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.made = self.holder.stdout.readline() == "ready\n"
        self.prefix = ["nsenter", "-t", str(self.holder.pid), *([] if root else ["-U", "--preserve-credentials"]), "-n"]
        if not self.made:
            print("needs a network namespace, and none can be made here: not run")

    def ip(self, *words):
        done = run(*self.prefix, "ip", *words)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"

    def program(self, *words):
        """On the card, in there."""
        return Program([*self.prefix, *on_card(*words)])

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class OneHost:
    name = "one host"

    def __init__(self):
        routed = [line.split() for line in run("ip", "-o", "-4", "addr", "show", "up", "scope", "global").stdout.splitlines()]
        loopback = ("lo", "127.0.0.1")
        self.interface, self.address = (routed[0][1], routed[0][3].split("/")[0]) if routed else loopback
        self.device = device_of(self.interface, [])

    def words(self, _side, words):
        return list(words)


class TwoNamespaces:
    name = "two namespaces"
    interface = "cable"
    network = "10.98.0.0/24"
    address, other_address = "10.98.0.1", "10.98.0.2"  # of server and client

    def __init__(self):
        self.spaces = [f"beeline-{os.getpid()}-{side}" for side in ("server", "client")]
        for space in self.spaces:
            subprocess.run(["ip", "netns", "add", space], check=True)
        subprocess.run(["ip", "link", "add", self.interface, "netns", self.spaces[0], "type", "veth", "peer", "name",
                        self.interface, "netns", self.spaces[1]], check=True)
        # The kernel's own link-local address comes a second or two later, and programs speak of a changed GID table.
        for number, space in enumerate(self.spaces, 1):
            for words in (["link", "set", self.interface, "addrgenmode", "none"], ["link", "set", "lo", "up"],
                          ["addr", "add", f"10.98.0.{number}/24", "dev", self.interface],
                          ["link", "set", self.interface, "mtu", "4200", "up"],
                          ["addr", "add", f"fe80::{number}/64", "dev", self.interface, "nodad"]):
                subprocess.run(["ip", "-n", space, *words], check=True)
        for space in self.spaces:
            self.await_carrier(space)
        self.device = device_of(self.interface, self.words(0, []))

    def await_carrier(self, space):
        """The kernel tells of a new cable's state up to a second later; until then the port is down."""
        end = time.monotonic() + STEP_S
        while " UP " not in run("ip", "-n", space, "-br", "link", "show", self.interface).stdout:
            assert time.monotonic() < end, f"{self.interface} in {space} does not come up"
            time.sleep(0.02)

    @staticmethod
    def reason_against():
        if shutil.which("ip") is None:
            return "ip is not installed (scripts/setup --for-tests does that)"
        if os.geteuid() != 0:
            return "making network namespaces takes root"
        probe = f"beeline-{os.getpid()}-probe"
        made = run("ip", "netns", "add", probe)
        if made.returncode != 0:
            return f"no network namespace can be made here: {made.stderr.strip()}"
        entered = run("ip", "-n", probe, "link")  # takes a mount namespace, too
        run("ip", "netns", "del", probe)
        return None if entered.returncode == 0 else f"no network namespace can be entered here: {entered.stderr.strip()}"

    def words(self, side, words):
        return ["ip", "netns", "exec", self.spaces[side], *words]

    def close(self):
        for space in self.spaces:
            run("ip", "netns", "del", space)


def device_of(interface, prefix):
    """The bee device on an interface, by what `beeline run` shows programs."""
    listed = run(*prefix, *on_card("sh", "-c", "for d in /sys/class/infiniband/bee*; do "
                                   "echo ${d##*/} $(ls $d/device/net); done"))
    found = [line.split()[0] for line in listed.stdout.splitlines() if line.split()[1:] == [interface]]
    assert found, f"no device on {interface}: {listed.stdout}{listed.stderr}"
    return found[0]


@functools.cache
def places():
    """Every place that can be made here, made once for all tests of a program; says which cannot."""
    against = TwoNamespaces.reason_against()
    if against is not None:
        print(f"not in two namespaces: {against}")
        return [OneHost()]
    cable = TwoNamespaces()
    atexit.register(cable.close)
    return [OneHost(), cable]


_ports = iter(range(21000 + os.getpid() % 400 * 20, 32000))


def free_port():
    return next(_ports)


def pair(test, place, words, extra_client=(), port_option="-p", env=None):
    """Server and client of one tool, to their ends. Returns both outputs; both must succeed."""
    port = free_port()
    common = [*words, port_option, port]
    server = Program(place.words(0, on_card(*common)), env)
    client = None
    try:
        server.await_listening(port)
        client = Program(place.words(1, on_card(*common, *extra_client, place.address)), env)
        # A server whose client has failed waits for another.
        status = client.wait()
        statuses = status, server.wait(STEP_S if status == 0 else 5)
    finally:
        server.kill()
        if client is not None:
            client.kill()
    told = f"{' '.join(map(str, words))} ({place.name})\nclient:\n{client.output()}\nserver:\n{server.output()}"
    test.assertEqual(statuses, (0, 0), told)
    return server.output(), client.output()

"""Network namespaces: one with nothing but a loopback interface, or two that a veth pair connects. Nothing else runs on
their UDP port 4791, and their counters are theirs alone."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass

from .stage import Failure

PREFIX = "beeline-cmp"
TOOLS = ("ip", "unshare")


def reason_against():
    """Why there can be no namespaces here, in one line; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (scripts/setup --for-tests installs them)"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"no network namespace can be made here: {probe.stderr.strip()}"
    return None


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Place:
    """Where a process runs: a namespace, or (None) where the harness runs itself."""

    namespace: str | None
    address: str
    interface: str

    def words(self, command):
        return ["ip", "netns", "exec", self.namespace, *command] if self.namespace else list(command)


HERE = Place(None, "127.0.0.1", "lo")


def make_namespace(stage, name):
    # Whatever comes between the two must not leave it behind.
    stage.undo.callback(remove_namespace, name)
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def remove_namespace(name):
    with contextlib.suppress(Failure):
        ip("netns", "delete", name)


def one_host(stage):
    """A host of its own, with a loopback interface."""
    name = f"{PREFIX}-{os.getpid()}-host"
    make_namespace(stage, name)
    return Place(name, "127.0.0.1", "lo")


def wire(stage, mtu, label):
    """Two hosts and a wire."""
    places = []
    names = [f"{PREFIX}-{os.getpid()}-{label}{side}" for side in "ab"]
    for name in names:
        make_namespace(stage, name)
    ip("link", "add", "wire0", "netns", names[0], "mtu", mtu, "type", "veth",
       "peer", "name", "wire0", "netns", names[1], "mtu", mtu)
    for number, name in enumerate(names, 1):
        address = f"198.51.100.{number}"
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire0")
        ip("-n", name, "link", "set", "wire0", "up")
        places.append(Place(name, address, "wire0"))
    for place in places:
        wait_for_link(place)
    return places


def wait_for_link(place, patience=5):
    """The kernel says that a link is up some time after both its ends are; a program that starts before that takes
    another interface."""
    until = time.monotonic() + patience
    while " UP " not in ip("-n", place.namespace, "-brief", "link", "show", "dev", place.interface):
        if time.monotonic() > until:
            raise Failure(f"the link of namespace {place.namespace} is not up after {patience} s")
        time.sleep(0.02)


def is_running(pid):
    return os.path.exists(f"/proc/{pid}")


def sweep_abandoned():
    """Removes what a run that was killed outright has left."""
    for name in re.findall(rf"^({PREFIX}-(\d+)-\S+)", ip("netns", "list"), re.MULTILINE):
        if not is_running(name[1]):
            remove_namespace(name[0])

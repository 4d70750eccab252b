"""Where peers run: processes with deadlines, in their own process groups, and things that must be undone. Whatever ends
the run (the end, an error, Ctrl-C, a TERM), leaving the stage ends every process and undoes everything."""

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


class Failure(Exception):
    """A peer did not do what it was started for; the text says which and why, in one line."""

    output = ""  # what the first process had printed until then
    numbers = {}  # what can be made of that


@dataclass
class Outcome:
    words: list
    status: int
    output: str
    errors: str
    cpu_seconds: float  # user and system, with the children that it waited for
    wall_seconds: float

    def require(self):
        if self.status != 0:
            lines = (self.errors.strip() or self.output.strip() or "it said nothing").splitlines()
            how = f"status {self.status}" if self.status > 0 else f"signal {-self.status}"
            failure = Failure(f"{program_of(self.words)} ended with {how}: {lines[-1].strip()[:300]}")
            failure.output = self.output
            raise failure
        return self


def program_of(words):
    """What a command runs, without the words that only say where."""
    words = [str(word) for word in words]
    if words[:3] == ["ip", "netns", "exec"]:
        words = words[4:]
    if words[0] in ("env", "setpriv"):
        words = [word for word in words[1:] if "=" not in word]
    return " ".join([os.path.basename(words[0]), *words[1:3]])


class Process:
    """One started command."""

    def __init__(self, stage, words, environment, deadline_seconds):
        self.words = [str(word) for word in words]
        self.deadline = time.monotonic() + deadline_seconds
        self.deadline_seconds = deadline_seconds
        self.output, self.errors = (tempfile.TemporaryFile(dir=stage.directory) for _ in range(2))
        self.started = time.monotonic()
        self.outcome = None
        try:
            self.child = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.errors,
                                          env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            self.output.close()
            self.errors.close()
            raise Failure(f"{program_of(self.words)} does not start: {error.strerror}") from error
        self.pid = self.child.pid
        self.descriptor = os.pidfd_open(self.pid)

    def wait(self):
        """Waits until it ends, or its deadline, when it is ended: that is a Failure."""
        if self.outcome is None:
            ended, _, _ = select.select([self.descriptor], [], [], max(0, self.deadline - time.monotonic()))
            if not ended:
                self.end()
                failure = Failure(f"{program_of(self.words)} was not done after {self.deadline_seconds:.0f} s")
                failure.output = self.outcome.output
                raise failure
            self.reap()
        return self.outcome

    def reap(self):
        _, status, usage = os.wait4(self.pid, 0)
        self.child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - self.started
        os.close(self.descriptor)
        self.outcome = Outcome(self.words, self.child.returncode, self.read(self.output), self.read(self.errors),
                               usage.ru_utime + usage.ru_stime, wall)

    @staticmethod
    def read(file):
        with file:
            file.seek(0)
            return file.read().decode(errors="replace")

    def end(self):
        """Ends it and what it has started, if they still run."""
        if self.outcome is not None:
            return
        for number, patience in ((signal.SIGTERM, 2), (signal.SIGKILL, 10)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            if select.select([self.descriptor], [], [], patience)[0]:
                break
        # The group may outlive its leader.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.reap()

    def wait_for_socket(self, kind, port, patience=10):
        """Until it listens: `kind` is tcp or udp. Its own view of /proc/net is that of its network namespace."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if select.select([self.descriptor], [], [], 0.02)[0]:
                self.wait().require()
                raise Failure(f"{program_of(self.words)} ended before it listened")
            with contextlib.suppress(OSError):
                if any(is_open(Path(f"/proc/{self.pid}/net/{table}").read_text(), kind, port) for table in (kind, kind + "6")):
                    return
        raise Failure(f"{program_of(self.words)} does not listen on {kind} port {port} after {patience} s")


LISTENING, UNCONNECTED = "0A", "07"


def is_open(table, kind, port):
    """Does this text of /proc/net/{tcp,udp} have an open port?"""
    wanted = LISTENING if kind == "tcp" else UNCONNECTED
    rows = (line.split() for line in table.splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == wanted for row in rows if len(row) > 3)


class Stage:
    def __init__(self):
        self.undo = contextlib.ExitStack()
        self.processes = []

    def __enter__(self):
        self.directory = Path(self.undo.enter_context(tempfile.TemporaryDirectory(prefix="beeline-compare-")))
        # Whoever started this may have had interrupts ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: raise_exit(128 + number))
        return self

    def __exit__(self, *_):
        # A second Ctrl-C must not stop the cleaning up.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        self.end_processes()
        self.undo.close()
        for number, handler in before.items():
            signal.signal(number, handler)

    def end_processes(self):
        for process in self.processes:
            process.end()
        self.processes = []

    def start(self, words, environment=None, deadline=60):
        process = Process(self, words, environment, deadline)
        self.processes = [other for other in self.processes if other.outcome is None] + [process]
        return process

    def run(self, words, environment=None, deadline=60):
        return self.start(words, environment, deadline).wait().require()

    def run_together(self, commands, deadline=60):
        """Several processes that need each other: the first that fails ends all. `commands`: (words, environment)."""
        started = []
        try:
            for words, environment in commands:
                started.append(self.start(words, environment, deadline))
            waiting = list(started)
            while waiting:
                left = max(0, min(process.deadline for process in waiting) - time.monotonic())
                ready, _, _ = select.select([process.descriptor for process in waiting], [], [], left)
                for process in [p for p in waiting if p.descriptor in ready] or waiting[:1]:
                    waiting.remove(process)
                    process.wait().require()
            return [process.outcome for process in started]
        except Failure as failure:
            if started:
                started[0].end()
                failure.output = started[0].outcome.output
            raise
        finally:
            for process in started:
                process.end()


def raise_exit(status):
    raise SystemExit(status)


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shown(words):
    return shlex.join(str(word) for word in words)

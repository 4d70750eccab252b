"""Programs that run, on the host or in a guest, and how they ended."""
import collections
import contextlib
import os
import signal as numbers
import subprocess
import threading
import time

from lab.errors import LabError

TIMED_OUT = 124
MAX_OUTPUT_BYTES = 64 << 20


class Outcome(collections.namedtuple("Outcome", "status output")):
    """How a program ended: .status and .output (text, stdout and stderr together)."""

    __slots__ = ()

    def check(self):
        if self.status:
            raise LabError(f"status {self.status}: {self.output.strip()[-4000:]}")
        return self.output


class Running:
    """A program that runs. Subclasses feed `_grow` and `_end` from a thread of theirs."""

    def __init__(self, name, timeout, on_output=None):
        self.name, self.timeout = name, timeout
        self._on_output = on_output
        self._text = bytearray()
        self._status = None
        self._problem = None
        self._changed = threading.Condition()

    @property
    def output(self):
        with self._changed:
            return self._text.decode(errors="replace")

    @property
    def ended(self):
        with self._changed:
            return self._status is not None or self._problem is not None

    def wait(self, timeout=None):
        """Waits for the end (by default as long as the program may run, and some)."""
        deadline = timeout if timeout is not None else self.timeout + 30
        with self._changed:
            ended = self._changed.wait_for(lambda: self._status is not None or self._problem, deadline)
            if self._problem:
                raise LabError(f"{self.name}: {self._problem}")
            if not ended:
                raise LabError(f"{self.name}: not ended after {deadline} s; so far: {self._text[-2000:].decode(errors='replace')}")
            return Outcome(self._status, self._text.decode(errors="replace"))

    def wait_for(self, text, timeout=30):
        """Waits until the program has printed `text`; raises LabError when it ends or time does before."""
        wanted, end = text.encode(), time.monotonic() + timeout
        with self._changed:
            while wanted not in self._text:
                left = end - time.monotonic()
                if self._status is not None or self._problem or left <= 0:
                    raise LabError(f"{self.name}: did not print {text!r} "
                                   f"({self._problem or 'it ended' if left > 0 else f'within {timeout} s'}): "
                                   f"{self._text[-2000:].decode(errors='replace')}")
                self._changed.wait(left)
        return self

    def _grow(self, data):
        if not data:
            return
        with self._changed:
            if len(self._text) < MAX_OUTPUT_BYTES:
                self._text += data
            self._changed.notify_all()
        if self._on_output:
            self._on_output(data)

    def _end(self, status=None, problem=None):
        with self._changed:
            self._status, self._problem = status, problem
            self._changed.notify_all()


class HostProgram(Running):
    """A program of the host; killed when its time is up."""

    def __init__(self, command, shown, timeout, env=None, on_output=None):
        super().__init__(shown, timeout, on_output)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=env, start_new_session=True)
        self._late = False
        self._timer = threading.Timer(timeout, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()
        threading.Thread(target=self._read, daemon=True).start()

    def _time_is_up(self):
        self._late = True
        self.kill()

    def _read(self):
        while data := self.process.stdout.read1(65536):
            self._grow(data)
        status = self.process.wait()
        self._timer.cancel()
        self.process.stdout.close()
        self._end(TIMED_OUT if self._late else status if status >= 0 else 128 - status)

    def kill(self, signal="KILL"):
        """Sends a signal to the program and its children."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.returncode is None:
                os.killpg(self.process.pid, getattr(numbers, f"SIG{signal}"))

"""Processes have deadlines, and nothing outlives the harness, however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from place import BENCH

from harness import network, peers, programs
from harness.stage import Failure, Stage, program_of

PYTHON = sys.executable
# A process with a child of its own, that says the child's number and ignores SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(f"{child.pid} ")
time.sleep(600)
"""
LONG = 600


def is_gone(pid, patience=60):
    """Ended, or about to: a kill takes effect in its own time. A zombie that nobody waits for has ended, too."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def written(path, patience=60):
    """What another process writes there, once it has; a blank ends it."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if path.exists() and path.read_text().endswith(" "):
            return path.read_text().strip()
        time.sleep(0.01)
    raise AssertionError(f"nothing was written to {path}")


class Processes(unittest.TestCase):
    def setUp(self):
        self.stage = Stage()
        self.stage.__enter__()
        self.addCleanup(self.stage.__exit__, None, None, None)

    def python(self, code, *arguments):
        return [PYTHON, "-c", code, *arguments]

    def test_output_and_status(self):
        outcome = self.stage.run(self.python("import sys; print('out'); print('err', file=sys.stderr)"))
        self.assertEqual((outcome.status, outcome.output, outcome.errors), (0, "out\n", "err\n"))

    def test_cpu_time_includes_children(self):
        burn = "import time\nwhile time.process_time() < 0.2: pass"
        outcome = self.stage.run(self.python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', '''{burn}'''])"))
        self.assertGreaterEqual(outcome.cpu_seconds, 0.2)

    def test_a_failure_is_one_line(self):
        with self.assertRaises(Failure) as raised:
            self.stage.run(self.python("raise SystemExit('first\\nthe reason')"))
        self.assertIn("the reason", str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

    def test_a_program_that_is_not_there(self):
        with self.assertRaisesRegex(Failure, "no-such-program does not start: No such file"):
            self.stage.run(["/no-such-program"])

    def test_a_signal_is_named(self):
        with self.assertRaisesRegex(Failure, "signal 9"):
            self.stage.run(self.python("import os; os.kill(os.getpid(), 9)"))

    def test_a_deadline_ends_the_whole_group(self):
        path = self.stage.directory / "child"
        process = self.stage.start(self.python(STUBBORN, path), deadline=LONG)
        child = int(written(path))
        process.deadline = time.monotonic()
        with self.assertRaisesRegex(Failure, "was not done after"):
            process.wait()
        self.assertTrue(is_gone(child))

    def test_the_first_that_fails_ends_the_others(self):
        path = self.stage.directory / "child"
        fails = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nsys.exit('broke')"
        with self.assertRaisesRegex(Failure, "broke"):
            self.stage.run_together([(self.python(STUBBORN, path), None), (self.python(fails, path), None)], deadline=LONG)
        self.assertTrue(all(process.outcome is not None for process in self.stage.processes))

    def test_what_the_first_has_printed_survives_a_failure(self):
        prints = "import sys, time; print('a line', flush=True); open(sys.argv[1], 'w').write('x '); time.sleep(600)"
        fails = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nsys.exit('broke')"
        path = self.stage.directory / "printed"
        with self.assertRaises(Failure) as raised:
            self.stage.run_together([(self.python(prints, path), None), (self.python(fails, path), None)], deadline=LONG)
        self.assertEqual(raised.exception.output, "a line\n")
        with self.assertRaises(Failure) as raised:
            self.stage.run(self.python("print('a result'); raise SystemExit('and an end')"))
        self.assertEqual(raised.exception.output, "a result\n")

    def test_together_they_share_an_environment_of_their_own(self):
        show = self.python("import os; print(os.environ['MARK'])")
        outcomes = self.stage.run_together([(show, {"MARK": "a"}), (show, {"MARK": "b"})])
        self.assertEqual([outcome.output for outcome in outcomes], ["a\n", "b\n"])

    def test_waits_for_a_listener(self):
        listen = ("import socket, sys, time\ns = socket.create_server(('127.0.0.1', 0))\n"
                  "open(sys.argv[1], 'w').write(f'{s.getsockname()[1]} ')\ntime.sleep(600)")
        path = self.stage.directory / "port"
        process = self.stage.start(self.python(listen, path))
        process.wait_for_socket("tcp", int(written(path)))

    def test_a_listener_that_ends_is_not_waited_for(self):
        process = self.stage.start(self.python("raise SystemExit('port taken')"))
        with self.assertRaisesRegex(Failure, "port taken"):
            process.wait_for_socket("tcp", 1, patience=LONG)

    def test_names_without_the_place(self):
        self.assertEqual(program_of(["ip", "netns", "exec", "n", "env", "A=b", "/bin/iperf3", "-c", "x", "y"]), "iperf3 -c x")


HARNESS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from harness.stage import Stage
with Stage() as stage:
    stage.undo.callback(lambda: open(sys.argv[3], "w").write("undone "))
    stage.start([sys.executable, "-c", sys.argv[4], sys.argv[2]], deadline=600)
    while True:
        time.sleep(1)
"""


class Ends(unittest.TestCase):
    def test_signals_undo_everything(self):
        for number, status in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)):
            with self.subTest(signal=number), tempfile.TemporaryDirectory() as directory:
                child, undone = Path(directory) / "child", Path(directory) / "undone"
                harness = subprocess.Popen([PYTHON, "-B", "-c", HARNESS, BENCH, child, undone, STUBBORN], stderr=subprocess.DEVNULL)
                pid = int(written(child))
                harness.send_signal(number)
                self.assertEqual(harness.wait(timeout=60), status)
                self.assertEqual(undone.read_text(), "undone ")
                self.assertTrue(is_gone(pid))


class Namespaces(unittest.TestCase):
    def calls(self, use):
        """What `use` asks of `ip`."""
        asked = []

        def ip(*words):
            asked.append(" ".join(map(str, words)))
            if "link show dev" in asked[-1]:
                return "wire0@if2        UP             0a:0b\n"
            return f"{network.PREFIX}-1-wirea (id: 0)\n{network.PREFIX}-999999999-hosta\nother\n"

        with mock.patch.object(network, "ip", ip):
            use()
        return asked

    def test_what_is_made_is_removed(self):
        def use():
            with Stage() as stage:
                network.wire(stage, 9000, "w")
                network.one_host(stage)

        asked = self.calls(use)
        made = [words.split()[-1] for words in asked if words.startswith("netns add")]
        removed = [words.split()[-1] for words in asked if words.startswith("netns delete")]
        self.assertEqual(len(made), 3)
        self.assertEqual(sorted(made), sorted(removed))
        self.assertTrue(all(str(os.getpid()) in name for name in made))

    def test_what_is_half_made_is_removed(self):
        asked = []

        def ip(*words):
            asked.append(words[:2])
            if words[:2] == ("link", "add"):
                raise Failure("no veth")
            return ""

        with mock.patch.object(network, "ip", ip), self.assertRaises(Failure), Stage() as stage:
            network.wire(stage, 9000, "w")
        self.assertEqual(asked.count(("netns", "delete")), 2)

    def test_only_what_the_dead_have_left_is_swept(self):
        asked = self.calls(network.sweep_abandoned)
        self.assertEqual(asked, ["netns list", f"netns delete {network.PREFIX}-999999999-hosta"])

    def test_without_root_the_reason_is_one_line(self):
        with mock.patch.object(os, "geteuid", lambda: 1000):
            self.assertEqual(network.reason_against(), "network namespaces take root")


class Missing(unittest.TestCase):
    def peers(self, may_install):
        return peers.Peers(None, lambda _: None, may_install)

    def test_a_missing_peer_is_one_line(self):
        with mock.patch.object(peers.shutil, "which", lambda _: None):
            with self.assertRaisesRegex(Failure, r"^iperf3 is missing \(apt-get install iperf3, or leave --no-install out\)$"):
                self.peers(False).require("iperf3")
            with mock.patch.object(os, "geteuid", lambda: 1000), self.assertRaisesRegex(Failure, "takes root"):
                self.peers(True).require("mpirun")

    def test_it_is_looked_up_once(self):
        looked = []
        with mock.patch.object(peers.shutil, "which", lambda name: looked.append(name) or "/bin/x"):
            peer = self.peers(True)
            peer.require("iperf3")
            peer.require("iperf3")
        self.assertEqual(looked, ["iperf3"])

    def test_a_missing_build_says_how_to_make_it(self):
        with tempfile.TemporaryDirectory() as directory, self.assertRaisesRegex(Failure, "scripts/build makes it"):
            programs.Programs(None, BENCH.parent, Path(directory)).beeline


if __name__ == "__main__":
    unittest.main(verbosity=2)

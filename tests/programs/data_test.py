"""What perftest does not look at: every byte that arrives, and which lane it came by. The program is verify/, stock
verbs over the machine's own libibverbs; how many payload bytes it moved it says itself, and `--counters` what the
card carried."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from place import BEELINE, BUILD, OneHost, Program, free_port, places, run

VERIFY = BUILD / "bin/verify"
ROUNDS = {"rc": 5 * 8 + 2, "uc": 4 * 8, "ud": 2 * 4}  # operations times sizes, and the two atomics


def counted(*words):
    return [str(BEELINE), "run", *map(str, words)]


class Side:
    """A program under `beeline run --counters`, and what became of it."""

    def __init__(self, words, prefix, env):
        self.file = Path(tempfile.mkstemp(suffix=".json")[1])
        self.program = Program(prefix(counted("--counters", self.file, "--", *words)), env)

    def lanes(self, test):
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        test.assertEqual([line["version"] for line in lines], [1], "one process, one line")
        return lines[0]["lanes"]

    def payload(self):
        """What the program says that it sent and received."""
        return tuple(map(int, re.search(r"payload out (\d+) in (\d+)", self.program.output()).groups()))


class Data(unittest.TestCase):
    def play(self, place, service, lane=None):
        port = free_port()
        env = {**os.environ, **({"BEELINE_LANE": lane} if lane else {})}
        words = [VERIFY, "-d", place.device, "-c", service, "-p", port]
        sides = [Side(words, lambda w: place.words(0, w), env)]
        try:
            sides[0].program.await_listening(port)
            sides.append(Side([*words, place.address], lambda w: place.words(1, w), env))
            for side in reversed(sides):
                self.assertEqual(side.program.wait(600), 0, "\n".join(each.program.output() for each in sides))
                self.assertEqual(side.program.output().count(": good\n"), ROUNDS[service])
            return [(side.payload(), side.lanes(self)) for side in sides]
        finally:
            for side in sides:
                side.program.kill()
                side.file.unlink()

    def check_wire(self, service):
        for place in places():
            played = self.play(place, service, "wire")
            for (out, into), lanes in played:
                self.assertGreaterEqual(lanes["wire"]["payload_bytes_sent"], out)
                self.assertGreaterEqual(lanes["wire"]["payload_bytes_received"], into)
                others = [count for name, lane in lanes.items() if name != "wire" for count in lane.values()]
                self.assertFalse(any(others), lanes)
            (server_out, server_in), (client_out, client_in) = (payload for payload, _ in played)
            self.assertEqual((server_out, server_in), (client_in, client_out))
            self.assertGreater(client_out, 0)

    def test_reliable_connections(self):
        self.check_wire("rc")

    def test_unreliable_connections(self):
        self.check_wire("uc")

    def test_datagrams(self):
        self.check_wire("ud")

    def test_whatever_the_lane_it_is_counted(self):
        for (out, into), lanes in self.play(OneHost(), "rc"):
            self.assertGreaterEqual(sum(lane["payload_bytes_sent"] for lane in lanes.values()), out)
            self.assertGreaterEqual(sum(lane["payload_bytes_received"] for lane in lanes.values()), into)

    def test_the_program_knows_nothing_of_beeline(self):
        needed = subprocess.run(["ldd", VERIFY], capture_output=True, text=True, check=True).stdout
        self.assertIn("libibverbs.so.1", needed)
        self.assertNotIn("beeline", needed.replace(str(BUILD), ""))


class Counters(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.file = self.directory / "counters.json"
        self.env = {name: value for name, value in os.environ.items() if name != "BEELINE_COUNTERS"}

    def lines(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def run_counted(self, *words, **options):
        return run(*counted("--counters", self.file, "--", *words), env=self.env, **options)

    def test_silent_and_beside_the_program(self):
        done = self.run_counted("ibv_devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([line["program"] for line in self.lines()], ["ibv_devices"])
        self.assertEqual(self.lines()[0]["lanes"]["wire"], {"payload_bytes_sent": 0, "payload_bytes_received": 0})

    def test_lines_are_appended_and_a_program_without_the_card_writes_none(self):
        for _ in range(2):
            self.run_counted("sh", "-c", "ibv_devices; ibv_devinfo; true")
        self.assertEqual([line["program"] for line in self.lines()], ["ibv_devices", "ibv_devinfo"] * 2)

    def test_a_program_that_goes_elsewhere_writes_to_the_same_file(self):
        done = run(*counted("--counters", "counters.json", "--", "sh", "-c", "cd / && ibv_devices"), env=self.env,
                   cwd=self.directory)
        self.assertEqual((done.returncode, done.stderr, len(self.lines())), (0, "", 1))
        code = "import ctypes, os; v = ctypes.CDLL('libibverbs.so.1'); v.ibv_get_device_list(None); os.chdir('/')"
        done = run(*counted(sys.executable, "-c", code), env={**self.env, "BEELINE_COUNTERS": "counters.json"},
                   cwd=self.directory)
        self.assertEqual((done.returncode, done.stderr, len(self.lines())), (0, "", 2))

    def test_a_forked_child_that_uses_no_card_writes_none(self):
        code = "import ctypes, os; v = ctypes.CDLL('libibverbs.so.1'); v.ibv_get_device_list(None)\n"
        for in_child, lines in (("pass", 1), ("v.ibv_get_device_list(None)", 3)):
            done = self.run_counted(sys.executable, "-c", code + f"pid = os.fork()\nif pid == 0:\n    {in_child}\n"
                                    "else:\n    os.waitpid(pid, 0)\n")
            self.assertEqual((done.returncode, done.stderr, len(self.lines())), (0, "", lines), in_child)

    def test_the_status_is_the_programs(self):
        done = self.run_counted("sh", "-c", "ibv_devices >&2; exit 7")
        self.assertEqual((done.returncode, len(self.lines())), (7, 1))

    def test_an_exit_in_the_middle_of_the_cards_work_is_no_hang(self):
        """The card's lock is then held for good: there are the counters, or one sentence that there are none."""
        program = self.directory / "leaves"
        source = Path(__file__).with_name("leaves_in_handler.c")
        subprocess.run(["cc", "-D_GNU_SOURCE", source, "-o", program, "-libverbs"], check=True)
        done = self.run_counted(program)
        self.assertEqual(done.returncode, 0, done)
        told = re.fullmatch(r"beeline\[\d+\] warning: BEELINE_COUNTERS: .* nothing written\n", done.stderr)
        self.assertEqual((bool(told), len(self.lines())), (True, 0) if done.stderr else (False, 1))

    def test_a_file_that_cannot_be_written_is_refused_before_the_program_runs(self):
        self.file = self.directory / "none/counters.json"
        done = self.run_counted("echo", "ran")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"\Abeeline run: --counters .*: No such file or directory\n\Z")

    def test_the_option_takes_a_word(self):
        done = run(BEELINE, "run", "--counters", env=self.env)
        self.assertNotEqual(done.returncode, 0)
        done = run(BEELINE, "run", f"--counters={self.file}", "ibv_devices", env=self.env)
        self.assertEqual((done.returncode, len(self.lines())), (0, 1))

    def test_the_help_and_the_variables_name_it(self):
        self.assertIn("--counters", run(BEELINE, "run", "--help").stdout)
        printed = run(*counted("--counters", self.file, "--print-env"), env=self.env).stdout
        self.assertIn(f"BEELINE_COUNTERS={self.file}\n", printed)


if __name__ == "__main__":
    unittest.main(verbosity=2)

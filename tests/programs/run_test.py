"""`beeline run` itself: exit statuses, signals, what it refuses, what it leaves behind, what it shows of the card."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from place import BEELINE, PRELOAD, Program, free_port, on_card, run


def trees(where):
    return sorted(Path(where).glob("beeline-run.*"))


class Private(unittest.TestCase):
    """Trees go to a directory of the test's own, so that others' runs are not counted."""

    def setUp(self):
        self.runtime = tempfile.mkdtemp(prefix="beeline-test-")
        self.addCleanup(shutil.rmtree, self.runtime)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.runtime}
        self.env.pop("LD_PRELOAD", None)

    def on_card(self, *words, **options):
        return run(*on_card(*words), env=self.env, **options)


class Statuses(Private):
    def test_the_programs_status_is_passed_on_and_nothing_is_said(self):
        for status in (0, 1, 7, 255):
            done = self.on_card("sh", "-c", f"exit {status}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", ""))

    def test_death_by_a_signal_is_128_and_its_number(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            done = self.on_card("sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (128 + number, "", ""))

    def test_no_such_program_and_no_permission(self):
        plain = Path(self.runtime, "plain")
        plain.write_text("text")
        os.chmod(plain, 0o644)
        for words, status in ((["no-such-program"], 127), ([str(plain)], 126), ([self.runtime], 126)):
            done = self.on_card(*words)
            self.assertEqual(done.returncode, status, done)
            self.assertRegex(done.stderr, r"\Abeeline run: .*\n\Z")

    def test_a_missing_interpreter_is_named(self):
        script = Path(self.runtime, "script")
        script.write_text("#!/nonexistent/interpreter\n")
        os.chmod(script, 0o755)
        done = self.on_card(script)
        self.assertEqual(done.returncode, 126)
        self.assertRegex(done.stderr, r"\Abeeline run: .*interpreter.*\n\Z")

    def test_signal_dispositions_of_the_caller_do_not_matter_and_reach_the_program(self):
        """With SIGCHLD ignored the kernel takes ended children away without a word."""
        def ignore():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ask = "import signal; exit(5 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 6)"
        done = self.on_card(sys.executable, "-c", ask, preexec_fn=ignore)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "", ""))

    def test_options_of_the_program_are_its_own(self):
        for words in ((BEELINE, "run", "echo", "--help", "-n"), (BEELINE, "run", "--", "echo", "--help", "-n")):
            self.assertEqual(run(*words, env=self.env).stdout, "--help -n\n")

    def test_bad_use_is_one_sentence(self):
        for words in ([], ["--"]):
            done = run(BEELINE, "run", *words, env=self.env)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"\Abeeline run: .*\n\Z")
        done = run(BEELINE, "run", "--nonsense", env=self.env)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--nonsense", done.stderr)
        done = run(*on_card("true"), env={**self.env, "BEELINE_PROVIDER": "nonsense"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("BEELINE_PROVIDER", done.stderr)

    def test_help_says_what_is_preloaded_and_what_cannot_be(self):
        text = run(BEELINE, "run", "--help").stdout
        for word in ("libbeeline-preload.so", "set-user-ID", "statically", "ib_write_bw", "mpirun", "127", "126"):
            self.assertIn(word, text)

    def test_the_variables_alone(self):
        printed = run(BEELINE, "run", "--print-env", env=self.env).stdout
        self.assertEqual(printed, f"LD_PRELOAD={PRELOAD}\n")
        listed = run("ibv_devices", env={**self.env, "LD_PRELOAD": str(PRELOAD)})
        self.assertIn("bee0", listed.stdout)

    def test_what_was_preloaded_before_stays(self):
        before = {**self.env, "LD_PRELOAD": "libm.so.6"}
        self.assertEqual(run(*on_card("printenv", "LD_PRELOAD"), env=before).stdout, f"{PRELOAD}:libm.so.6\n")


class Reasons(Private):
    """Verbs hand numbers to programs; BEELINE_LOG=debug says what lies behind them."""

    def test_an_address_without_a_gid(self):
        port = free_port()
        words = on_card("ibv_rc_pingpong", "-d", "bee0", "-p", port)
        server = Program(words, env={**self.env, "BEELINE_LOG": "debug"})
        self.addCleanup(server.kill)
        server.await_listening(port)
        client = run(*words, "127.0.0.1", env=self.env)
        self.assertNotEqual((client.returncode, server.wait()), (0, 0))
        self.assertRegex(server.output(), "verbs: .*-g 0")

    @unittest.skipIf(os.geteuid() != 0, "takes a network namespace of its own")
    def test_the_wire_s_port_is_somebody_else_s(self):
        squat = ("import os, socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                 "s.bind(('127.0.0.1', 4791)); s.set_inheritable(True); os.execvp(sys.argv[1], sys.argv[1:])")
        words = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-c", squat]
        done = run("unshare", "-n", *words, *on_card("rping", "-s", "-a", "127.0.0.1", "-C", 1),
                   env={**self.env, "BEELINE_LOG": "debug"})
        self.assertNotEqual(done.returncode, 0, done)
        self.assertIn("Address already in use", done.stdout + done.stderr)
        self.assertRegex(done.stderr, "rdma_cm: .*4791")


class Refusals(Private):
    def test_static_programs(self):
        done = self.on_card(shutil.which("busybox"), "true")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("statically linked", done.stderr)

    def test_set_user_id_programs(self):
        if os.geteuid() == 0:  # a program of another user's
            program = Path(self.runtime, "program")
            shutil.copy("/bin/true", program)
            os.chown(program, 1, 1)
            os.chmod(program, 0o4755)
        else:
            program = shutil.which("su")
        done = self.on_card(program)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("set-user-ID", done.stderr)

    def test_scripts_count_as_their_interpreter(self):
        script = Path(self.runtime, "script")
        script.write_text(f"#!{shutil.which('busybox')} true\n")
        os.chmod(script, 0o755)
        self.assertIn("statically linked", self.on_card(script).stderr)
        script.write_text("#!/bin/sh\nexit 5\n")
        self.assertEqual(self.on_card(script).returncode, 5)


class Signals(Private):
    def start(self, text):
        program = Program(on_card("sh", "-c", text), self.env)
        end = time.monotonic() + 60
        while "ready" not in program.output():
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(program.process.poll(), program.output())
            time.sleep(0.02)
        return program

    def test_they_reach_the_program(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
            name = number.name.removeprefix("SIG")
            program = self.start(f"trap 'exit 40' {name}; echo ready; while :; do sleep 0.05; done")
            program.process.send_signal(number)
            self.assertEqual(program.wait(), 40, name)

    def test_the_default_is_death_and_leaves_no_tree(self):
        program = self.start("echo ready; exec sleep 600")
        self.assertEqual(len(trees(self.runtime)), 1)
        program.process.terminate()
        self.assertEqual(program.wait(), 128 + signal.SIGTERM)
        self.assertEqual(trees(self.runtime), [])

    def test_killing_the_runner_kills_the_program_and_the_next_run_sweeps(self):
        program = self.start("echo ready $$; exec sleep 600")
        child = int(program.output().split()[1])
        os.kill(program.process.pid, signal.SIGKILL)
        program.process.wait()
        end = time.monotonic() + 60
        while Path(f"/proc/{child}").exists() and "Z" != Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0]:
            self.assertLess(time.monotonic(), end, "the program outlives its runner")
            time.sleep(0.02)
        self.assertEqual(len(trees(self.runtime)), 1)
        self.assertEqual(self.on_card("true").returncode, 0)
        self.assertEqual(trees(self.runtime), [])

    def test_a_daemon_keeps_its_tree(self):
        pid = Path(self.runtime, "pid")
        done = self.on_card("sh", "-c", f"setsid sleep 600 >/dev/null 2>&1 & echo $! > {pid}")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        daemon = int(pid.read_text())
        try:
            for _ in range(2):  # the next run leaves it alone, too
                self.assertEqual(len(trees(self.runtime)), 1)
                self.assertEqual(self.on_card("true").returncode, 0)
        finally:
            os.kill(daemon, signal.SIGKILL)
        end = time.monotonic() + 60
        while trees(self.runtime) and time.monotonic() < end:
            self.assertEqual(self.on_card("true").returncode, 0)
        self.assertEqual(trees(self.runtime), [])

    def test_trees_of_others_are_left_alone(self):
        program = self.start("echo ready; exec sleep 600")
        alive = trees(self.runtime)
        foreign = Path(self.runtime, "beeline-run.1.1.1.abcdef")  # of another namespace of process numbers
        strange = Path(self.runtime, "beeline-run.strange")
        foreign.mkdir()
        strange.mkdir()
        self.assertEqual(self.on_card("true").returncode, 0)
        self.assertEqual(trees(self.runtime), sorted([*alive, foreign, strange]))
        program.kill()


class Files(Private):
    if os.geteuid() == 0:  # mounts a small file system
        def test_a_full_runtime_directory_is_not_the_end(self):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=4,mode=700", "none", self.runtime], check=True)
            self.addCleanup(subprocess.run, ["umount", self.runtime], check=True)
            done = self.on_card("ls", "/sys/class/infiniband")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("bee0", done.stdout)
            self.assertEqual(trees(self.runtime), [])

    def test_the_tree_is_private_and_hidden(self):
        seen = self.on_card("sh", "-c", "stat -c %a $BEELINE_RUN_TREE; readlink -f /sys/class/infiniband/bee0/device;"
                            "cd /sys/class/infiniband/bee0 && cat node_type")
        self.assertEqual(seen.stdout.splitlines(), ["700", "/sys/devices/virtual/beeline/bee0", "1: CA"], seen)

    def test_every_way_to_look_at_a_file(self):
        """Python uses open64, stat64, opendir, readlink; coreutils statx, openat, getxattr; bash its own globbing."""
        code = """
import os
d = '/sys/class/infiniband/bee0'
assert os.path.isdir(d) and 'bee0' in os.listdir('/sys/class/infiniband')
assert open(d + '/ports/1/gid_attrs/types/0').read() == 'RoCE v2\\n'
assert os.readlink(d).endswith('/infiniband/bee0') and os.path.islink(d)
assert os.access('/dev/infiniband/bee0', os.R_OK | os.W_OK)
import stat
assert stat.S_ISCHR(os.stat('/dev/infiniband/bee0').st_mode)
assert [e.name for e in os.scandir(d + '/device/net')] == os.listdir(d + '/device/net')
assert os.path.exists('/sys/class/net') and not os.path.exists('/sys/class/infiniband_none')
"""
        self.assertEqual(self.on_card(sys.executable, "-c", code).stderr, "")
        listed = self.on_card("ls", "-lL", "/sys/class/infiniband/bee0/", "/dev/infiniband")
        self.assertEqual((listed.returncode, listed.stderr), (0, ""))
        globbed = self.on_card("bash", "-c", "echo /sys/class/infiniband/bee0/ports/*; [[ -e /dev/infiniband/rdma_cm ]]")
        self.assertEqual((globbed.returncode, globbed.stdout), (0, "/sys/class/infiniband/bee0/ports/1\n"))

    def test_sysfs_says_what_the_verbs_say(self):
        verbs = self.on_card("ibv_devinfo", "-v", "-d", "bee0")
        self.assertEqual(verbs.returncode, 0, verbs)
        guid = re.search(r"node_guid:\s+(\S+)", verbs.stdout).group(1)
        firmware = re.search(r"fw_ver:\s+(\S+)", verbs.stdout).group(1)
        files = self.on_card("cat", *(f"/sys/class/infiniband/bee0/{name}" for name in ("node_guid", "fw_ver", "board_id")))
        self.assertEqual(files.stdout.splitlines(), [guid, firmware, "beeline"])
        self.assertRegex(verbs.stdout, r"board_id:\s+beeline")
        gids = re.findall(r"GID\[\s*(\d+)\]:\s+(\S+), (.*)", verbs.stdout)
        self.assertTrue(gids, verbs.stdout)
        for index, gid, kind in gids:
            types = self.on_card("cat", f"/sys/class/infiniband/bee0/ports/1/gid_attrs/types/{index}")
            self.assertEqual(types.stdout.strip(), kind)


class Listings(Private):
    def test_ibv_devices(self):
        done = self.on_card("ibv_devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"bee0\s+[0-9a-f]{16}\n")

    def test_ibv_devinfo(self):
        done = self.on_card("ibv_devinfo", "-v")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for pattern in (r"hca_id:\s+bee0", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet", r"GID\[ +0\]:.*RoCE v2"):
            self.assertRegex(done.stdout, pattern)

    def test_ibstat(self):
        done = self.on_card("ibstat")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for pattern in (r"CA 'bee0'", r"State: Active", r"Physical state: LinkUp", r"Link layer: Ethernet"):
            self.assertRegex(done.stdout, pattern)

    def test_the_provider_system_has_no_card(self):
        done = run(*on_card("ibv_devices"), env={**self.env, "BEELINE_PROVIDER": "system"})
        self.assertNotIn("bee0", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""beeline doctor as the ranks of a job: one of them says what differs between two hosts (network namespaces with a
cable between them), all end with its status, and who does not answer is named. The launcher is Open MPI's."""

import json
import os
import pathlib
import stat
import subprocess
import tempfile
import time
import unittest

import namespace

PROGRAM = (pathlib.Path(os.environ.get("BEELINE_BUILD", "build")) / "bin/beeline").resolve()
HERE, THERE = "10.77.0.1", "10.77.0.2"
LIMIT_S = 120
# The launcher's own library leaks at its end, which is no matter of ours.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "ASAN_OPTIONS": "detect_leaks=0", "NO_COLOR": "1"}


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="beeline-ranks.")))
        self.other = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", "hostname node-b; echo ready; exec sleep 600"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, self.other)
        self.assertEqual(self.other.stdout.readline(), "ready\n")
        self.inside = ["nsenter", "--target", str(self.other.pid), "--net", "--uts"]
        self.ip("link", "add", "rail0", "type", "veth", "peer", "name", "rail0", "netns", str(self.other.pid))
        self.addCleanup(subprocess.run, ["ip", "link", "del", "rail0"], check=False)
        self.ip("link", "set", "lo", "up", there=True)
        for there, address in ((False, HERE), (True, THERE)):
            self.ip("addr", "add", f"{address}/24", "dev", "rail0", there=there)
            self.ip("link", "set", "rail0", "up", there=there)
        for _ in range(300):
            shown = subprocess.run(["ip", "link", "show", "rail0"], capture_output=True, text=True, check=True)
            if "state UP" in shown.stdout:
                break
            time.sleep(0.1)
        # mpirun starts its daemon on the other host by this instead of by ssh.
        self.agent = self.script("agent", f'shift; exec {" ".join(self.inside)} sh -c "$*"')

    def end(self, process):
        process.kill()
        process.wait()
        process.stdout.close()

    def ip(self, *words, there=False):
        subprocess.run([*(self.inside if there else []), "ip", *words], check=True)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def mpirun(self, hosts, ranks, *command):
        return subprocess.run(
            ["mpirun", "--mca", "plm_rsh_agent", str(self.agent), "--mca", "oob_tcp_if_include", f"{HERE}/24",
             "--host", hosts, "--oversubscribe", "-n", str(ranks), *map(str, command)],
            capture_output=True, text=True, timeout=LIMIT_S, env=ENVIRONMENT)

    # Trees whose values are known, whatever this machine is: rank 3's differs.
    def trees(self):
        for name, governor in (("alike", "performance"), ("other", "powersave")):
            path = self.folder / name / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
            path.parent.mkdir(parents=True)
            path.write_text(f"{governor}\n")
        return self.script("rank", f'tree=alike; [ "$OMPI_COMM_WORLD_RANK" = 3 ] && tree=other\n'
                           f'exec {PROGRAM} doctor --root {self.folder}/$tree --wait 60 "$@"')

    def test_two_hosts_that_are_alike(self):
        for hosts in (f"{HERE}:2,{THERE}:2", f"{THERE}:2,{HERE}:2"):  # rank 0 where mpirun is, and where it is not
            done = self.mpirun(hosts, 4, PROGRAM, "doctor", "--only", "host.nofile,path")
            self.assertIn("2 hosts, 4 reports: ", done.stdout, done.stderr)
            self.assertEqual(done.stdout.count("2 hosts"), 1, done.stdout)
            self.assertIn(" node-b", done.stdout)
            self.assertIn("nothing differs", done.stdout)

    def test_two_hosts_that_differ(self):
        traced = self.script("traced", f'[ "$(hostname)" = node-b ] && export NCCL_DEBUG=TRACE\nexec {PROGRAM} doctor "$@"')
        done = self.mpirun(f"{HERE},{THERE}", 2, traced, "--only", "nccl.debug", "--json")
        compared = json.loads(done.stdout[:done.stdout.rindex("}\n") + 2])
        self.assertEqual(len(compared["hosts"]), 2)
        self.assertEqual(compared["missing"], [])
        by_what = {(row["id"], row["what"]): row for row in compared["differences"]}
        self.assertIn(("nccl.debug", "status"), by_what, done.stdout)
        row = by_what["nccl.debug", "status"]
        alarm = [status for status, hosts in row["hosts"].items() if hosts == ["node-b"]]
        self.assertEqual(len(alarm), 1, row)
        self.assertTrue(row["said"][alarm[0]]["fix"])
        self.assertEqual(done.returncode, {"failure": 3, "warning": 2}[alarm[0]], done.stdout)

    def test_ranks_with_trees_of_their_own(self):
        done = self.mpirun(f"{HERE}:4", 4, self.trees(), "--only", "nic,host")
        self.assertEqual(done.stdout.count("reports: "), 1, done.stdout + done.stderr)
        self.assertIn("2 hosts, 4 reports: ", done.stdout)
        self.assertRegex(done.stdout, r"host.governor: status differs\n +ok: .*\n +warning: unknown \(rank 3\)\n")
        self.assertEqual(done.stdout.count("cause"), 1, done.stdout)

    def test_who_does_not_answer_is_named(self):
        late = self.script("late", f'[ "$OMPI_COMM_WORLD_RANK" = 3 ] && exec sleep 60\nexec {PROGRAM} doctor "$@"')
        done = self.mpirun(f"{HERE}:2,{THERE}:2", 4, late, "--only", "host.nofile", "--wait", "3")
        self.assertRegex(done.stdout, rf"did not answer: {THERE}: rank 3\n")
        self.assertIn("2 hosts, 3 reports: ", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_rank_0_does_not_answer(self):
        late = self.script("late", f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec sleep 60\nexec {PROGRAM} doctor "$@"')
        done = self.mpirun(f"{HERE}:2", 2, late, "--only", "host.nofile", "--wait", "2")
        self.assertIn("rank 1: rank 0 posted no meeting point within 2 s", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_no_compare(self):
        done = self.mpirun(f"{HERE}:2", 2, PROGRAM, "doctor", "--only", "host.nofile", "--no-compare")
        self.assertEqual(done.stdout.count("1 check: "), 2, done.stdout + done.stderr)

    def ranks_by_hand(self, size, place, *options):
        """Without a launcher, rank 0 here and the others there; (status, standard output, standard error) of each."""
        started = [
            subprocess.Popen([*(self.inside if rank > 0 else []), str(PROGRAM), "doctor", "--only", "host.nofile", "--rank",
                              str(rank), "--size", str(size), "--rendezvous", place, *options],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
            for rank in range(size)
        ]
        return [(each.returncode, *said) for each in started for said in [each.communicate(timeout=LIMIT_S)]]

    def test_without_a_launcher(self):
        ranks = self.ranks_by_hand(3, f"{HERE}:18790")
        self.assertIn("2 hosts, 3 reports: ", ranks[0][1])
        self.assertEqual([each[1:] for each in ranks[1:]], [("", "")] * 2)
        self.assertEqual({each[0] for each in ranks}, {ranks[0][0]})

    def test_a_meeting_point_that_nobody_reaches(self):
        ranks = self.ranks_by_hand(2, "10.77.0.9:18790", "--wait", "3")
        self.assertEqual([each[0] for each in ranks], [1, 1])
        self.assertIn("no other rank answered within 3 s (rank 1)", ranks[0][2])
        self.assertIn("rank 1: rank 0 was not reached at 10.77.0.9:18790", ranks[1][2])


if __name__ == "__main__":
    namespace.enter("nsenter", "mpirun")
    unittest.main(verbosity=2)

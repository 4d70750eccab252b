#!/usr/bin/env python3
"""The path of real hardware, as near as a machine without any gets to it: our programs on the kernel's
verbs device through stock libibverbs. perf and every collective between two guests on rxe0; then a
group of which one rank is in a guest on rxe0 and the other on this host on bee0."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BEELINE_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT))
from lab import Lab, reason_against  # noqa: E402

NOT_RUN = 77  # ctest counts this as not run
BEELINE = BUILD / "bin/beeline"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# bench checks every element against the same reference, bit for bit, so runs that have
# nothing wrong have the same results.
SIZES = "-b 4 -e 256K -f 16 -n 3 -w 1 -c 1 --timeout 240"


class HardwarePath(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="beeline-hardware."))
        cls.lab = cls.enterClassContext(Lab(guests=2, mtu=4200, share=cls.folder, programs=[BEELINE]))

    def start_rank(self, where, rank, operation, datatype):
        """where: a guest's number, or "host". A rank of two that meet at rank 0."""
        zero = self.meeting
        words = (f"bench {operation} {SIZES} -d {datatype} --rank {rank} --size 2 --rendezvous {zero}:29500"
                 + (f" --json {self.folder if where == 'host' else '/share'}/result.json" if rank == 0 else ""))
        if where == "host":
            return self.lab.host_start(BEELINE, *words.split(), timeout=280)
        return self.lab.guest(where).start(f"beeline {words}", timeout=280)

    def collective(self, places, operation, datatype="float"):
        """Runs it with rank i at places[i]; every element right; the devices that the ranks say they used."""
        first = places[0]
        self.meeting = self.lab.ipv4 if first == "host" else self.lab.guest(first).ipv4
        ranks = [self.start_rank(place, rank, operation, datatype) for rank, place in enumerate(places)]
        outputs = [rank.wait() for rank in ranks]
        self.assertEqual([each.status for each in outputs], [0, 0], "\n--\n".join(each.output for each in outputs))
        result = json.loads(pathlib.Path(self.folder, "result.json").read_text())
        self.assertGreaterEqual(len(result["results"]), 4)
        for row in result["results"]:
            for kind in ("out_of_place", "in_place"):
                self.assertEqual(row[kind]["wrong"], 0, row)
        return result, outputs

    def test_devices_names_the_real_one_first(self):
        said = json.loads(self.lab.guest(0).run("beeline devices --json").check())["devices"]
        self.assertEqual(said[0]["name"], "rxe0")
        self.assertTrue(said[0]["active"])
        self.assertEqual(said[0]["active_mtu_bytes"], 4096)
        self.assertIn(self.lab.guest(0).ipv4, [gid["address"] for gid in said[0]["gids"]])
        self.assertTrue(any(each["name"].startswith("bee") for each in said))

    def test_perf_between_two_kernels(self):
        for test, options in (("write_bw", "-s 65536 -n 60"), ("read_bw", "-s 65536 -n 60"), ("send_bw", "-s 10000 -n 60"),
                              ("write_lat", "-n 50"), ("send_lat", "-n 50"), ("read_lat", "-n 50")):
            with self.subTest(test=test):
                server = self.lab.guest(0).start(f"beeline perf {test} -d rxe0", timeout=100).wait_for("Waiting for client")
                client = self.lab.guest(1).run(f"beeline perf {test} -d rxe0 {options} --check {self.lab.guest(0).ipv4}", timeout=100)
                self.assertEqual((client.status, server.wait().status), (0, 0), client.output + server.output)

    def test_collectives_between_two_kernels(self):
        for operation in OPERATIONS:
            with self.subTest(operation=operation):
                _, outputs = self.collective([0, 1], operation)
                self.assertIn("rxe0", outputs[0].output)

    def test_a_group_of_a_kernel_and_a_software_card(self):
        for places in (["host", 1], [1, "host"]):
            for operation in OPERATIONS:
                with self.subTest(places=places, operation=operation):
                    self.collective(places, operation, "bfloat16" if places[0] == 1 else "float")


if __name__ == "__main__":
    if why := reason_against():
        print(f"hardware_path_test.py does not run: {why}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2, failfast=True)  # what failed leaves the guests in a state that says nothing

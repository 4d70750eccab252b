"""What bench/profile reads out of callgrind's files: who executes how much, below whom, on which lines."""

import tempfile
import unittest
from pathlib import Path

from place import sample

from harness import callgrind, profiling, steps
from harness.stage import Failure


class Reading(unittest.TestCase):
    def setUp(self):
        self.profile = callgrind.read(sample("callgrind.out"))

    def test_instructions_of_a_functions_own(self):
        self.assertEqual(self.profile.own["post(int)"], 40)  # inlined ones, too
        self.assertEqual(self.profile.own["build(int)"], 80)
        self.assertEqual(self.profile.total, 40 + 80 + 60 + 300 + 1)

    def test_functions_without_names_are_told_apart_by_their_file(self):
        self.assertEqual(self.profile.own["/lib/crc.so:0x00001000"], 300)
        self.assertEqual(self.profile.own["/bin/example:0x00001000"], 1)

    def test_calls(self):
        self.assertEqual(self.profile.calls(r"build\("), 10)
        self.assertEqual(self.profile.whole("build(int)"), 80 + 120 + 180)
        self.assertEqual(self.profile.calls("absent"), 0)

    def test_lines_are_where_the_source_is(self):
        self.assertEqual(self.profile.lines["/home/two/build/../src/exec/fingerprint.h", 15], 7)
        self.assertEqual(self.profile.lines["/home/one/src/nic/post.cc", 11], 3)
        self.assertEqual(self.profile.lines["/home/one/src/nic/post.cc", 12], 10)  # `*`: the line before's

    def test_below_a_function_only_its_share_counts(self):
        # post() makes 200 of the 500 instructions that calls of build() cost, so 200/380 of what build() is known to cost.
        within, stopped = self.profile.below(r"post\(", None)
        self.assertAlmostEqual(within, 40 + 200)
        self.assertEqual(stopped, 0)
        within, stopped = self.profile.below(r"post\(", r"/lib/crc\.so:")
        self.assertAlmostEqual(within, 40 + 80 * 200 / 380)
        self.assertAlmostEqual(stopped, 300 * 200 / 380)

    def test_nested_roots_count_once(self):
        within, _ = self.profile.below(r"post\(|build\(", None)
        self.assertAlmostEqual(within, 40 + 380)

    def test_nothing_below_nothing(self):
        self.assertEqual(self.profile.below("absent", "absent, too"), (0, 0))

    def test_recursion_ends(self):
        text = ("# callgrind format\nfl=(1) a.cc\nfn=(1) a\n1 10\ncfn=(2) b\ncalls=1 1\n1 20\n"
                "fn=(2)\n1 5\ncfn=(1)\ncalls=1 1\n1 15\n")
        within, _ = callgrind.read(text).below("a$", None)
        self.assertGreaterEqual(within, 10)

    def test_other_files_are_refused(self):
        for text in ("", "hello", "\n# callgrind format"):
            with self.assertRaises(Failure):
                callgrind.read(text)


class Steps(unittest.TestCase):
    def run_of(self, size, build, crc, built=10):
        """Ten messages of one packet."""
        text = (f"# callgrind format\nfl=(1) tx.cc\nfn=(1) beeline::nic::TxBatch::build(int)\n1 {build}\n"
                f"cfn=(2) beeline::wire::Icrc::update(int)\ncalls=10 1\n2 {crc}\nfn=(2)\n1 {crc}\n"
                f"fn=(3) send\n1 1\ncfn=(1)\ncalls={built} 1\n1 {build + crc}\n")
        profile = callgrind.read(text)
        return profiling.WriteRun(size, 10, profile, profile)

    def step(self, text):
        return next(step for step in steps.STEPS if step.text.startswith(text))

    def test_a_step_excludes_what_another_counts(self):
        run = self.run_of(4096, 500, 2000)
        self.assertEqual(run.instructions(self.step("build a packet")), 50)
        self.assertEqual(run.instructions(self.step("ICRC of a packet that leaves")), 200)

    def test_packets_that_were_sent_twice_count_as_packets(self):
        run = self.run_of(4096, 500, 2000, built=20)
        self.assertEqual(run.sent_twice, 10)
        self.assertEqual(run.instructions(self.step("build a packet")), 25)

    def test_a_step_without_its_function_is_said_to_be_missing(self):
        run = self.run_of(4096, 500, 2000)
        self.assertIsNone(run.instructions(self.step("post a WRITE")))
        self.assertIn(self.step("post a WRITE").text, profiling.missing([run]))
        self.assertNotIn(self.step("build a packet").text, profiling.missing([run]))

    def test_per_byte_is_a_slope(self):
        runs = [self.run_of(64, 500, 100), self.run_of(2048, 500, 10000), self.run_of(4096, 500, 20240)]
        self.assertEqual(profiling.per_byte(runs, self.step("ICRC of a packet that leaves")), 0.5)

    def test_packets(self):
        self.assertEqual([profiling.packets(size) for size in (1, 4096, 4097, 65536)], [1, 1, 2, 16])

    def test_names_of_steps_are_one_of_a_kind(self):
        self.assertEqual(len({step.text for step in steps.STEPS}), len(steps.STEPS))


class Fingerprints(unittest.TestCase):
    def test_which_lines_are_theirs(self):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / "src" / "exec" / "run"
            folder.mkdir(parents=True)
            (folder / "run.cc").write_text("int x;\nfingerprint_ = fingerprint;\n")
            sources = profiling.Sources(root)
            self.assertTrue(sources.is_fingerprint("/a/build/../src/exec/fingerprint.h", 3))
            self.assertTrue(sources.is_fingerprint("/a/src/exec/run/run.cc", 2))
            self.assertFalse(sources.is_fingerprint("/a/src/exec/run/run.cc", 1))
            self.assertFalse(sources.is_fingerprint("/a/src/exec/run/run.cc", 99))
            self.assertFalse(sources.is_fingerprint("/a/src/nic/tx.cc", 2))
            self.assertFalse(sources.is_fingerprint("???", 2))


if __name__ == "__main__":
    unittest.main(verbosity=2)

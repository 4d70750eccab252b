"""What counts as reached, and how it is printed."""

import unittest

import place  # noqa: F401
from harness import goals, report
from harness.cases import (BEELINE, COLUMNS, CPU, GLOO, HOST, IDLE, IPERF3, LATENCY, LOSS, OPEN_MPI, RAW, SECTIONS, TITLES,
                           TORCH, WIRE, all_reduce_name, idle_name, loss_name, on_wire, stream_name)
from harness.series import Results, Spread

ENVIRONMENT = {"processor": "a processor", "cores": 2, "memory_GiB": 4, "kernel": "6", "load_at_start": 0.0, "commit": None}


def results_of(*cases):
    results = Results()
    for section, name, less_is_better, samples in cases:
        results.define(section, name, "us", less_is_better)
        results.get(section, name).samples.update(samples)
    return results


class Reached(unittest.TestCase):
    def only(self, results):
        found = goals.all_goals(results)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def host(self, size, ours, default, trimmed):
        return self.only(results_of((HOST, all_reduce_name(2, size), True,
                                     {BEELINE: [ours], OPEN_MPI[0]: [default], OPEN_MPI[1]: [trimmed]})))

    def test_open_mpi_counts_in_its_better_variant(self):
        self.assertEqual(self.host(8, 1.0, 5.0, 0.9).reached, False)
        self.assertEqual(self.host(8, 1.0, 0.9, 5.0).reached, False)
        self.assertEqual(self.host(8, 1.0, 5.0, 1.0).reached, True)

    def test_targets_on_one_host_grow_with_the_size(self):
        for size, target in ((8, 1.0), (1 << 10, 1.0), (32 << 10, 1.5), (16 << 20, 1.5), (128 << 20, 2.0)):
            self.assertEqual(self.host(size, 1.0, target, target).reached, True, size)
            self.assertEqual(self.host(size, 1.0, target * 0.99, target * 0.99).reached, False, size)

    def test_gloo_on_one_host(self):
        goal = self.only(results_of((TORCH, all_reduce_name(2, 4), True, {BEELINE: [1.0, 1.0, 1.0], GLOO: [4.0, 3.0, 5.0]})))
        self.assertTrue(goal.reached)
        self.assertEqual(goal.measured, Spread(4.0, 3.0, 5.0))

    def test_a_stream_has_two_rivals(self):
        found = goals.all_goals(results_of((WIRE, stream_name(9000, 65536), False,
                                            {BEELINE: [2.0], IPERF3: [1.0], RAW: [4.0]})))
        self.assertEqual([goal.reached for goal in found], [True, False])

    def test_latency_may_be_half_as_much_again(self):
        name = on_wire(1500, LATENCY)
        self.assertTrue(self.only(results_of((WIRE, name, True, {BEELINE: [15.0], RAW: [10.0]}))).reached)
        self.assertFalse(self.only(results_of((WIRE, name, True, {BEELINE: [15.1], RAW: [10.0]}))).reached)

    def test_cpu_time_may_be_iperf3s(self):
        name = stream_name(1500, 1 << 20)
        self.assertTrue(self.only(results_of((CPU, name, True, {BEELINE: [0.5], IPERF3: [0.5]}))).reached)
        self.assertFalse(self.only(results_of((CPU, name, True, {BEELINE: [0.6], IPERF3: [0.5]}))).reached)

    def test_an_idle_process_that_uses_nothing(self):
        self.assertTrue(self.only(results_of((IDLE, idle_name("auto"), True, {BEELINE: [0.0]}))).reached)
        self.assertFalse(self.only(results_of((IDLE, idle_name("auto"), True, {BEELINE: [20.0]}))).reached)

    def test_a_rival_that_did_not_run_reaches_nothing_and_misses_nothing(self):
        goal = self.only(results_of((TORCH, all_reduce_name(2, 4), True, {BEELINE: [1.0], GLOO: [None]})))
        self.assertIsNone(goal.reached)
        self.assertIsNone(goal.as_json()["measured"])


class Printed(unittest.TestCase):
    def whole(self, results, failures=()):
        return report.whole(results, ENVIRONMENT, {"rounds": 3}, list(failures))

    def test_three_digits(self):
        numbers = {0: "0", 0.5: "0.500", 0.0316: "0.0316", 0.00001: "1.00e-05", 1: "1.00", 9.999: "10.0", 999.6: "1000", 21.64: "21.6",
                   187.4: "187", 1018.0: "1020", 31449.0: "31400", None: "-"}
        self.assertEqual({value: report.number(value) for value in numbers}, numbers)

    def test_a_row_names_the_better_variant(self):
        text = self.whole(results_of((HOST, all_reduce_name(2, 8), True,
                                      {BEELINE: [1.0, 2.0, 3.0], OPEN_MPI[0]: [9.0] * 3, OPEN_MPI[1]: [4.0] * 3})))
        row = next(line for line in text.splitlines() if line.startswith("| 2 ranks, 8 B |"))
        self.assertEqual([cell.strip() for cell in row.strip("|").split("|")],
                         ["2 ranks, 8 B", "us", "2.00 [1.00-3.00]", "4.00 trim fix", "2.00x [1.33-4.00]"])

    def test_goals_and_failures_are_printed(self):
        text = self.whole(results_of((TORCH, all_reduce_name(2, 4), True, {BEELINE: [1.0], GLOO: [2.0]})), ["iperf3: is missing"])
        self.assertIn("Goals: 0 of 1 reached", text)
        self.assertRegex(text, r"at least 4\.00 x +\| 2\.00 +\| NOT reached")
        self.assertIn("- iperf3: is missing", text)

    def test_nothing_measured_is_no_table(self):
        self.assertNotIn("|", self.whole(Results()))

    def test_every_section_can_be_printed(self):
        self.assertEqual(set(COLUMNS), set(SECTIONS))
        self.assertEqual(set(TITLES), set(SECTIONS))
        for section in SECTIONS:
            text = self.whole(results_of((section, loss_name(9000, 0.1), False, {BEELINE: [1.0]})))
            self.assertIn(TITLES[section], text)
        self.assertEqual(loss_name(9000, 0), "MTU 9000, nothing lost")
        self.assertIn(IPERF3, COLUMNS[LOSS])


if __name__ == "__main__":
    unittest.main(verbosity=2)

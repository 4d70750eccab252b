"""Medians, ranges, ratios pair by pair, and who runs when."""

import unittest

import place  # noqa: F401
from harness.series import Case, Contender, Results, Spread, interleave


class Pairs(unittest.TestCase):
    def case(self, less_is_better=True, **samples):
        return Case("host", "8 B", "us", less_is_better, samples)

    def test_a_spread_is_median_and_range(self):
        self.assertEqual(Spread.of([3.0, 1.0, 2.0]), Spread(2.0, 1.0, 3.0))
        self.assertEqual(Spread.of([4.0, 1.0]), Spread(2.5, 1.0, 4.0))

    def test_rounds_without_a_number_do_not_count(self):
        self.assertEqual(Spread.of([None, 5.0, None]), Spread(5.0, 5.0, 5.0))
        self.assertIsNone(Spread.of([None]))
        self.assertIsNone(Spread.of([]))

    def test_less_time_is_an_advantage(self):
        self.assertEqual(self.case(ours=[1.0, 2.0], theirs=[4.0, 1.0]).advantages("ours", "theirs"), [4.0, 0.5])

    def test_more_bandwidth_is_an_advantage(self):
        self.assertEqual(self.case(False, ours=[4.0], theirs=[2.0]).advantages("ours", "theirs"), [2.0])

    def test_ratios_stay_within_a_round(self):
        # The machine slows down by 10 in round 2: the medians' ratio would be far from what every round says.
        drifting = self.case(ours=[1.0, 10.0, 10.0], theirs=[2.0, 20.0, 20.0])
        self.assertEqual(drifting.advantages("ours", "theirs"), [2.0, 2.0, 2.0])

    def test_a_pair_with_a_hole_is_no_pair(self):
        self.assertEqual(self.case(ours=[1.0, None, 2.0], theirs=[None, 5.0, 4.0]).advantages("ours", "theirs"), [2.0])
        self.assertEqual(self.case(ours=[1.0]).advantages("ours", "absent"), [])

    def test_nothing_is_divided_by_zero(self):
        self.assertEqual(self.case(ours=[0.0, 1.0], theirs=[1.0, 0.0]).advantages("ours", "theirs"), [])
        self.assertEqual(self.case(ours=[0.0, 1.0], theirs=[2.0, 0.0]).ratios("ours", "theirs"), [0.0])

    def test_the_best_variant_has_the_best_median(self):
        self.assertEqual(self.case(a=[5.0, 1.0, 5.0], b=[3.0, 3.0, 3.0]).best_of(["a", "b"]), "b")
        self.assertEqual(self.case(False, a=[5.0], b=[3.0]).best_of(["a", "b"]), "a")
        self.assertEqual(self.case(a=[None], b=[3.0]).best_of(["a", "b", "absent"]), "b")
        self.assertIsNone(self.case(a=[None]).best_of(["a"]))

    def test_results_survive_json(self):
        results = Results()
        results.define("host", "8 B", "us", less_is_better=True)
        results.get("host", "8 B").add("Beeline", 1.5)
        results.get("host", "8 B").add("Beeline", None)
        self.assertEqual(Results.from_json(results.as_json()).as_json(), results.as_json())


class Broken(Exception):
    numbers = {}


class Interleaving(unittest.TestCase):
    def setUp(self):
        self.results, self.ran, self.failed = Results(), [], []
        self.results.define("host", "x", "us", less_is_better=True)

    def contender(self, name, *answers):
        left = list(answers)

        def run():
            self.ran.append(name)
            answer = left.pop(0)
            if answer is None:
                raise Broken(f"{name} broke")
            return {("host", "x"): answer, ("host", "not asked for"): 1.0}

        return Contender(name, [("host", "x")], run)

    def run_rounds(self, *contenders, rounds):
        interleave(contenders, rounds, self.results, lambda _: None, lambda *why: self.failed.append(why), Broken)
        return self.results.get("host", "x").samples

    def test_contenders_take_turns(self):
        samples = self.run_rounds(self.contender("A", 1.0, 2.0), self.contender("B", 3.0, 4.0), rounds=2)
        self.assertEqual(self.ran, ["A", "B", "A", "B"])
        self.assertEqual(samples, {"A": [1.0, 2.0], "B": [3.0, 4.0]})

    def test_one_that_fails_leaves_a_hole_and_the_rest_goes_on(self):
        samples = self.run_rounds(self.contender("A", None, 2.0), self.contender("B", 3.0, 4.0), rounds=2)
        self.assertEqual(samples, {"A": [None, 2.0], "B": [3.0, 4.0]})
        self.assertEqual(self.failed, [("A", "A broke")])

    def test_what_it_answered_before_it_failed_counts(self):
        def run():
            failure = Broken("at the larger sizes")
            failure.numbers = {("host", "x"): 7.0}
            raise failure

        self.assertEqual(self.run_rounds(Contender("A", [("host", "x")], run), rounds=1), {"A": [7.0]})
        self.assertEqual(self.failed, [("A", "at the larger sizes")])

    def test_one_that_fails_twice_running_is_left_alone(self):
        samples = self.run_rounds(self.contender("A", None, None), self.contender("B", *[1.0] * 4), rounds=4)
        self.assertEqual(self.ran, ["A", "B", "A", "B", "B", "B"])
        self.assertEqual(samples["A"], [None] * 4)

    def test_what_is_not_defined_is_not_kept(self):
        self.run_rounds(self.contender("A", 1.0), rounds=1)
        self.assertEqual(list(self.results.by_key), [("host", "x")])

    def test_other_errors_are_not_hidden(self):
        def run():
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.run_rounds(Contender("A", [], run), rounds=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)

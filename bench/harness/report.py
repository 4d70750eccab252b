"""Tables in Markdown, padded so that they read well in a terminal, too."""

from . import machine
from .cases import BEELINE, COLUMNS, SECTIONS, TITLES
from .goals import all_goals
from .series import Spread


def number(value):
    """Three significant digits, without an exponent where the number is not tiny."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    text = f"{value:#.3g}".rstrip(".")
    return f"{float(text):.0f}" if "e+" in text else text


def spread_text(spread, suffix=""):
    if spread is None:
        return "-"
    if spread.least == spread.most:
        return f"{number(spread.median)}{suffix}"
    return f"{number(spread.median)}{suffix} [{number(spread.least)}-{number(spread.most)}]"


def table(header, rows):
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    def line(cells):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows)])


def columns_of(section, cases):
    """The columns that have anything in them."""
    return {label: names for label, names in COLUMNS[section].items()
            if any(case.best_of(names) for case in cases)}


def section_table(section, cases):
    columns = columns_of(section, cases)
    others = [label for label in columns if label != BEELINE]
    header = ["case", "unit", *columns, *(f"times {label}" for label in others)]
    rows = []
    for case in cases:
        row = [case.name, case.unit]
        for label, names in columns.items():
            best = case.best_of(names)
            variant = best[len(label):].lstrip(", ") if best and best.startswith(label) else ""
            row.append(spread_text(case.spread(best)) + (f" {variant}" if variant else "") if best else "-")
        for label in others:
            best = case.best_of(columns[label])
            row.append(spread_text(Spread.of(case.advantages(BEELINE, best)), "x") if best else "-")
        rows.append(row)
    return table(header, rows)


VERDICTS = {True: "reached", False: "NOT reached", None: "not measured"}


def goals_table(goals):
    rows = [[goal.text, f"{'at least' if goal.at_least else 'at most'} {number(goal.target)} {goal.unit}",
             spread_text(goal.measured), VERDICTS[goal.reached]] for goal in goals]
    return table(["goal", "target", "measured", ""], rows)


def whole(results, environment, options, failures):
    """The report of a run."""
    rounds = options["rounds"]
    parts = [f"{machine.in_one_line(environment)}.\n"
             f"Median [least-most] of {rounds} rounds, the contenders in turn within each; 'times': how many times better "
             "Beeline is, pair by pair within a round (below 1: worse)."]
    for section in SECTIONS:
        cases = results.of(section)
        if cases:
            parts.append(f"### {TITLES[section]}\n\n{section_table(section, cases)}")
    goals = all_goals(results)
    if goals:
        reached = sum(goal.reached is True for goal in goals)
        parts.append(f"### Goals: {reached} of {len(goals)} reached\n\n{goals_table(goals)}")
    if failures:
        parts.append("### What did not run\n\n" + "\n".join(f"- {line}" for line in failures))
    return "\n\n".join(parts) + "\n"

"""Tables in Markdown, padded so that they read well in a terminal, too."""

from . import machine
from .cases import (BEELINE, COLUMNS, CPU, GLOO, HOST, IPERF3, LATENCY, LOSS, LOSSES, RAW, SECTIONS, TITLES, TORCH, WIRE,
                    all_reduce_name, on_wire, share_name, stream_name)
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


# What a reader of README.md asks first: (section, case, rival).
FIRST_QUESTIONS = [
    *((HOST, all_reduce_name(2, size), "Open MPI") for size in (8, 32 << 10, 1 << 20, 128 << 20)),
    *((HOST, all_reduce_name(4, size), "Open MPI") for size in (8, 1 << 20)),
    *((TORCH, all_reduce_name(2, size), GLOO) for size in (4, 1 << 20, 128 << 20)),
    *((WIRE, stream_name(9000, 1 << 20), rival) for rival in (IPERF3, RAW)),
    *((WIRE, stream_name(1500, 1 << 20), rival) for rival in (IPERF3, RAW)),
    (WIRE, on_wire(9000, LATENCY), RAW),
    *((WIRE, on_wire(9000, f"PyTorch all_reduce, {size}"), GLOO) for size in ("4 B", "1 MiB", "128 MiB")),
    *((LOSS, share_name(9000, percent), IPERF3) for percent in LOSSES),
    (CPU, stream_name(9000, 1 << 20), IPERF3),
]
WHERE = {HOST: "one host, C++", TORCH: "one host, PyTorch", WIRE: "wire", LOSS: "wire", CPU: "wire, CPU time"}


def summary(results, environment, options):
    """The table of README.md."""
    rows = []
    for section, name, rival in FIRST_QUESTIONS:
        case = results.get(section, name)
        best = case and case.best_of(COLUMNS[section][rival])
        if best and case.spread(BEELINE):
            rows.append([f"{WHERE[section]}: {name}", case.unit, spread_text(case.spread(BEELINE)), best,
                         spread_text(case.spread(best)), spread_text(Spread.of(case.advantages(BEELINE, best)), "x")])
    if not rows:
        return "Nothing was measured."
    return (f"{machine.in_one_line(environment)}{remarks(options, environment)}; median [least-most] of {options['rounds']} "
            f"rounds.\n\n{table(['', 'unit', 'Beeline', 'beside', 'its', 'Beeline is better by'], rows)}")


def remarks(options, environment):
    """What makes the numbers less than they seem."""
    found = ["a quick run: to try it out, not to compare by"] if options.get("quick") else []
    if environment["load_at_start"] > 0.5:
        found.append("the machine was busy with something else")
    if options.get("stock_buffers"):
        found.append(f"receive buffers of net.core.rmem_max = {environment.get('rmem_max')}")
    if options.get("pin"):
        found.append("ranks pinned to cores")
    return "".join(f"; {remark}" for remark in found)


def whole(results, environment, options, failures):
    """The report of a run."""
    rounds = options["rounds"]
    parts = [f"{machine.in_one_line(environment)}{remarks(options, environment)}.\n"
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

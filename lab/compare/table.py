"""The comparison as a Markdown table, so that it can stand in a document as it is."""
NOT_PROPORTIONAL = 0.05  # how far a long run as a whole may be from the difference of two
SENT_AGAIN = 1.1  # packets, of those that a message and its acknowledgement need


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def cell(figures):
    low, middle, high = (number(figures[name]) for name in ("min", "median", "max"))
    return middle if low == high else f"{middle} ({low}-{high})"


def data_packets(line):
    return -(-line["bytes"] // line["mtu_bytes"])


def proportional(line):
    whole, slope = line["whole_run_per_message"]["median"], line["instructions_per_message"]["median"]
    return abs(whole - slope) <= NOT_PROPORTIONAL * whole


def sends_again(line):
    return line["packets_per_message"] > SENT_AGAIN * (data_packets(line) + 1)


def share(line):
    return "-" if line["user_share"] is None else f"{line['user_share']:.0%}"


def row(ours, kernels):
    unit = "instructions_per_byte" if ours["bytes"] >= 1024 else "instructions_per_message"
    ratio = ours[unit]["median"] / kernels[unit]["median"]
    return (f"| {ours['title']} | {ours['mtu_bytes']} | {'byte' if 'byte' in unit else 'message'} | {cell(kernels[unit])} "
            f"| {cell(ours[unit])} | {ratio:.2f} "
            f"| {kernels['packets_per_message']:.1f} / {ours['packets_per_message']:.1f} "
            f"| {kernels['switches_per_message']:.1f} / {ours['switches_per_message']:.1f} "
            f"| {share(kernels)} / {share(ours)} |")


def notes(result):
    for line in result["perftest"]:
        yield (f"perftest's ib_write_bw on rxe, path MTU {line['mtu_bytes']}: {cell(line['instructions_per_byte'])} "
               f"instructions per byte")
    for line in result["results"]:
        where = f"{line['card']}, {line['title']}, path MTU {line['mtu_bytes']}"
        if not proportional(line):
            whole, slope = line["whole_run_per_message"]["median"], line["instructions_per_message"]["median"]
            yield (f"{where}: not proportional to the number of messages: {number(whole)} per message in a whole run, "
                   f"{number(slope)} in the difference of two")
        if sends_again(line):
            yield f"{where}: {line['packets_per_message']:.1f} packets per message: some were sent again"
        if line["datagrams_dropped"]:
            yield f"{where}: {line['datagrams_dropped']} datagrams found no room in a socket's receive buffer"


def splits(result):
    """What a packet and what a byte costs, out of the same messages in packets of two sizes."""
    lines = {}
    for line in result["results"]:
        lines.setdefault((line["title"], line["card"]), []).append(line)
    for (title, card), both in lines.items():
        if len(both) != 2 or any(sends_again(line) or not proportional(line) for line in both):
            continue
        few, many = sorted(both, key=data_packets)
        fewer, more = (line["instructions_per_message"]["median"] for line in (few, many))
        packet = (more - fewer) / (data_packets(many) - data_packets(few))
        yield (f"{card}, {title}: {number(packet)} per packet and "
               f"{number((fewer - data_packets(few) * packet) / few['bytes'])} per byte")


def pairs(result):
    kernels = {(line["title"], line["mtu_bytes"]): line for line in result["results"] if line["card"] == "rxe"}
    return [(line, kernels[line["title"], line["mtu_bytes"]]) for line in result["results"] if line["card"] == "bee0"]


def render(result):
    """Lines."""
    yield (f"Guest instructions, both ends and the kernel together: emulated, {result['processors']} processor, Linux "
           f"{result['kernel']}, median of {result['runs']} (range)")
    yield ""
    yield ("| what | path MTU | instructions per | rxe | bee0 | bee0 / rxe | packets per message "
           "| context switches per message | user space |")
    yield "|---" * 9 + "|"
    for ours, kernels in pairs(result):
        yield row(ours, kernels)
    yield ""
    for note in [*splits(result), *notes(result)]:
        yield f"- {note}"

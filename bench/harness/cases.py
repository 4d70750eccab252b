"""The names of what is compared: sections, contenders, cases, sizes."""

from .parse import byte_count

HOST, TORCH, WIRE, LOSS, CPU, IDLE = SECTIONS = ("host", "torch", "wire", "loss", "cpu", "idle")

BEELINE, IPERF3, RAW, GLOO = "Beeline", "iperf3 TCP", "raw UDP", "gloo"
OPEN_MPI = ["Open MPI", "Open MPI, trim fix"]
OPEN_MPI_TCP = ["Open MPI over TCP", "Open MPI over TCP, trim fix"]
OPEN_MPI_YIELD = ["Open MPI yielding", "Open MPI yielding, trim fix"]

SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20, 128 << 20]
YIELD_SIZES = [8, 1 << 20]
TORCH_SIZES = [4, 1 << 10, 32 << 10, 1 << 20, 16 << 20, 128 << 20]
MESSAGES = [64 << 10, 1 << 20]
MTUS = [9000, 1500]
PATH_MTU = {9000: 4096, 1500: 1024}  # the largest RoCE v2 packets that fit
LOSSES = [0.1, 1.0]  # percent
LATENCY = "send_lat, 2 B"


def all_reduce_name(ranks, size):
    return f"{ranks} ranks, {byte_count(size)}"


def on_wire(mtu, what):
    return f"MTU {mtu}, {what}"


def stream_name(mtu, size):
    return on_wire(mtu, f"write_bw {byte_count(size)}")


def loss_name(mtu, percent):
    return on_wire(mtu, f"{percent:g} % lost" if percent else "nothing lost")


def share_name(mtu, percent):
    return on_wire(mtu, f"{percent:g} % lost: share of the loss-free goodput")


def idle_name(lane):
    return f"2 ranks, lane {lane}"


# Section -> columns of its table: label -> contenders, of which the better is shown. The first is ours.
COLUMNS = {
    HOST: {BEELINE: [BEELINE], "Open MPI": OPEN_MPI + OPEN_MPI_YIELD, "Open MPI over TCP": OPEN_MPI_TCP},
    TORCH: {BEELINE: [BEELINE], GLOO: [GLOO]},
    WIRE: {BEELINE: [BEELINE], IPERF3: [IPERF3], RAW: [RAW], GLOO: [GLOO]},
    LOSS: {BEELINE: [BEELINE], IPERF3: [IPERF3]},
    CPU: {BEELINE: [BEELINE], IPERF3: [IPERF3]},
    IDLE: {BEELINE: [BEELINE]},
}
TITLES = {
    HOST: "One host, C++ API, all_reduce of float32",
    TORCH: "One host, through PyTorch, all_reduce of float32, 2 ranks",
    WIRE: "On the wire: two network namespaces, a veth pair",
    LOSS: "Loss on the wire: uniform, both directions, segmentation offload off, so that each packet is lost or not",
    CPU: "CPU time, user and system, both ends, per GB on the wire",
    IDLE: "CPU time of a process that has an open device and nothing to do",
}

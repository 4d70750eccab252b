"""The hot paths, step by step: which functions they are. When a function gets another name, its row here does, too."""

from dataclasses import dataclass

POST = r"beeline::verbs::soft::post_send\("
ENGINE = r"beeline::nic::Engine::(serve|poll)\("
TRANSMIT = r"beeline::nic::Engine::transmit\("
IDLE = r"beeline::nic::Engine::receive\("
CUT = r"beeline::proto::QueuePair::poll_transmit\("
BUILD = r"beeline::nic::TxBatch::build\("
ICRC = r"beeline::(wire::Icrc::|wire::check_icrc\(|wire::store_icrc\(|nic::crc_guarded\()"
SEND = r"beeline::port::\(anonymous namespace\)::UdpPort::send\("
RECEIVE = r"beeline::port::\(anonymous namespace\)::UdpPort::receive\("
TAKE = r"beeline::nic::Receiver::"  # any of its functions: what calls one from another counts once
HANDLE = r"beeline::proto::QueuePair::handle_packet\("
PLACE = r"beeline::nic::RegionTable::write\("
POLL = r"beeline::verbs::soft::poll_cq\("

SENDER, RECEIVER = "sender", "receiver"


@dataclass(frozen=True)
class Step:
    """Instructions of `root` with what it calls, without `less` and what that calls; or (`only`) of `less` alone."""

    text: str
    end: str
    root: str
    less: str | None = None
    only: bool = False
    per: str = "message"  # or packet: what its instructions are divided by

    def instructions(self, profile):
        outside, inside = profile.below(self.root, self.less)
        return inside if self.only else outside


STEPS = [
    Step("post a WRITE: check it, queue it", SENDER, POST, ENGINE),
    Step("cut it into packets: the protocol", SENDER, CUT, per="packet"),
    Step("build a packet: headers, references to memory", SENDER, BUILD, ICRC, per="packet"),
    Step("ICRC of a packet that leaves", SENDER, BUILD, ICRC, only=True, per="packet"),
    Step("hand packets to the kernel", SENDER, SEND, per="packet"),
    Step("take acknowledgements", SENDER, TAKE),
    Step("poll completions, without what the engine does meanwhile", SENDER, POLL, ENGINE),
    Step("a posted WRITE in all: post_send(), and the engine's sending whoever drives it", SENDER, f"{POST}|{TRANSMIT}",
         IDLE),
    Step("fetch packets from the kernel", RECEIVER, RECEIVE, per="packet"),
    Step("ICRC of a packet that arrives", RECEIVER, TAKE, ICRC, only=True, per="packet"),
    Step("parse, find the queue pair, obey the protocol", RECEIVER, TAKE, f"{ICRC}|{PLACE}", per="packet"),
    Step("put the payload into place", RECEIVER, TAKE, PLACE, only=True, per="packet"),
    Step("a received packet in all: fetched, checked, in place", RECEIVER, f"{RECEIVE}|{TAKE}", per="packet"),
]

# Instructions per byte: how the step grows from the middle size to the largest of one packet.
BY_THE_BYTE = [step for step in STEPS if step.text.startswith(("ICRC", "put the payload"))]

SYSTEM_CALLS = ("sendmsg", "sendmmsg", "sendto", "recvmsg", "recvmmsg", "recvfrom", "epoll_wait", "poll", "ppoll",
                "clock_gettime", "process_vm_readv", "process_vm_writev")

# An all_reduce by the C API, and what in it is there for the fingerprints alone: the lines of these files, and the lines
# of the executor that name one.
ALL_REDUCE = r"beeline_(all_reduce|barrier)$"
FINGERPRINT_GOAL = 60  # instructions per call, at most
FINGERPRINT_FILES = ("exec/fingerprint.h", "exec/fingerprint.cc", "exec/run/roll_call.h")
FINGERPRINT_FOLDER = "exec/"
FINGERPRINT_WORDS = r"fingerprint|roll_call|advert\.call"

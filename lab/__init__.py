"""Beeline's lab: stock Linux kernels with rdma_rxe, in emulated machines, as RoCE v2 peers.

    import sys; sys.path.insert(0, ROOT)        # the root of the repository
    from lab import Lab, LabError, reason_against

    if why := reason_against():                 # one sentence, or None where a lab can run
        print("... does not run:", why); sys.exit(77)

    with Lab(guests=2, mtu=4200, programs=["build/bin/beeline"]) as lab:
        lab.host("ip", "addr")                               # in the lab's network namespace; -> Outcome
        server = lab.guest(0).start("ib_write_bw -d rxe0 -x 1 -F", timeout=60)   # goes on meanwhile
        client = lab.guest(1).run(f"ib_write_bw -d rxe0 -x 1 -F {lab.guest(0).ipv4}", timeout=60)
        assert client.status == 0, client.output
        assert server.wait().status == 0
        with lab.capture("x.pcap"):                          # tcpdump, UDP 4791, on the bridge
            ...

Lab(guests=1, mtu=1500, smp=1, memory_mb=256, share=None, programs=(), icount=False, damage=None)
    mtu       1500 gives rxe0 an active MTU of 1024, 4200 one of 4096
    programs  files of ours (build/bin/x, build/lib/y.so): with the shared libraries that they need
              they are put into a folder that guests see as /programs, in PATH and LD_LIBRARY_PATH
    share     a folder of the host that guests see as /share and may write
    damage    dict(seed=1, drop=1, duplicate=1, reorder=1, corrupt=1): per cent of the UDP 4791 packets
              between guest 0 and everybody else (lab/damage.py)

lab.ipv4, lab.ipv6        the host's addresses on the bridge (device `br0`)
lab.host(*cmd, timeout=60, env=None), lab.host_start(*cmd, ...)    programs in the namespace, as root
lab.guest(i)              .ipv4 .ipv6 .tap (its device in the namespace), .console() its console's text
    .gid(4) .gid(6)       index of rxe0's GID for that address (also in the guest: `lab-gid 4`)
    .run(command, timeout=60, on_output=None)   a shell command in the guest, as root -> Outcome
    .start(command, timeout=60, on_output=None) the same without waiting -> Running: .output (so far),
                          .wait(timeout=None) -> Outcome, .wait_for("text", timeout), .kill(signal="KILL")
    at most 8 commands at once per guest
lab.capture(path, on="br0", filter="udp port 4791")    a context; on=lab.guest(0).tap: only what passes there
lab.set_damage(drop=0, corrupt=5, ...)     changes the percentages; lab.damage_counts() -> dict

Outcome: .status (128+n for signal n, TIMED_OUT=124 when its time ran out), .output (text; stdout and
stderr together), .check() raises LabError with the output unless status is 0, else returns output.

What fails in the lab itself raises LabError, with the end of the guest's console where that helps.
Nothing survives the process that made the Lab, however it ends: guests and programs are killed with
it (make a Lab in a thread that lives as long), the namespace goes with its last process, and a
janitor removes the temporary folder.
"""
from lab.errors import LabError
from lab.running import TIMED_OUT, Outcome, Running
from lab.setting import Lab, reason_against

__all__ = ["Lab", "LabError", "Outcome", "Running", "TIMED_OUT", "reason_against"]

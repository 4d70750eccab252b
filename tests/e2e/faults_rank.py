"""One rank of faults_test.py: what each fault looks like in Python."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def error_of(call):
    try:
        call()
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def say(what, message):
    print(f"{what} @ {time.monotonic():.3f} @ {' '.join(message.split())}", flush=True)


def mismatches():
    """Each in a group of its own, since a group does not survive it."""
    rank = dist.get_rank()
    calls = {
        "count": lambda group: dist.all_reduce(torch.ones(10 + rank), group=group),
        "dtype": lambda group: dist.all_reduce(torch.ones(10).to((torch.float32, torch.int32)[rank]), group=group),
        "reduction": lambda group: dist.all_reduce(
            torch.ones(10), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank], group=group
        ),
        "root": lambda group: dist.broadcast(torch.ones(10), rank, group=group),
        "operation": lambda group: (
            dist.all_reduce(torch.ones(10), group=group) if rank == 0 else dist.broadcast(torch.ones(10), 0, group=group)
        ),
    }
    for name, call in calls.items():
        group = dist.new_group(backend="beeline")
        say(f"first {name}", error_of(lambda: call(group)))
        say(f"later {name}", error_of(lambda: dist.barrier(group)))


def wait_for_dead(last_words):
    tensor = torch.ones(300_000)
    if dist.get_rank() == dist.get_world_size() - 1:
        dist.all_reduce(tensor)
        say("dies", "")
        last_words()
    # The first call goes through, unless another survivor's second one has failed before it ends here.
    for _ in range(3):
        message = error_of(lambda: dist.all_reduce(tensor))
        if message != "no error":
            break
    say("survives", message)


def killed():
    wait_for_dead(lambda: os.kill(os.getpid(), signal.SIGKILL))


def raises():
    def leave():
        raise SystemExit("a bug in the user's program")

    wait_for_dead(leave)


def killed_amid_async():
    """The survivors hold many unfinished works; every one of them must end."""
    tensors = [torch.ones(100_000) for _ in range(20)]
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        say("dies", "")
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    except dist.DistBackendError as error:
        say("survives", str(error))
        return
    messages = [error_of(work.wait) for work in works]
    for work in works:
        work.get_future().then(lambda done: None).wait() if work.is_success() else None
    say("survives", messages[-1])


def aborts():
    tensor = torch.ones(1000)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        store.wait(["rank 1 has the sum"])
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).abort()
    else:
        store.set("rank 1 has the sum", "yes")
    say("survives", error_of(lambda: dist.all_reduce(tensor)))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("beeline")
    {f.__name__: f for f in (mismatches, killed, raises, killed_amid_async, aborts)}[sys.argv[1]]()
    dist.destroy_process_group()
    print("all done", flush=True)


if __name__ == "__main__":
    main()

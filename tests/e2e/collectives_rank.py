"""One rank of collectives_test.py: every operation against what it should give.

The values are small whole numbers, so that sums are exact in every dtype and order.
"""

import os
import sys

import torch
import torch.distributed as dist

RANK, SIZE = 0, 0
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.uint8)
ONLY_MOVED = (torch.float16, torch.float64, torch.bool, torch.int8, torch.int16, torch.complex64)
COUNTS = (0, 1, 2, 7, 1000, 40_003)


def data(rank, count, dtype):
    """What `rank` contributes; multiples of the group's size, so that averages are exact too."""
    values = (torch.arange(count) * 7 + rank * 3) % 5 * SIZE
    return values.to(torch.float32).to(dtype)


def contributions(count, dtype):
    return torch.stack([data(rank, count, dtype).to(torch.float64) for rank in range(SIZE)])


REDUCTIONS = {
    dist.ReduceOp.SUM: lambda parts: parts.sum(0),
    dist.ReduceOp.MAX: lambda parts: parts.max(0).values if parts.shape[1] else parts[0],
    dist.ReduceOp.AVG: lambda parts: parts.mean(0),
}


def same(got, expected, what):
    expected = expected.to(got.dtype)
    if not torch.equal(got, expected):
        wrong = (got != expected).flatten().nonzero().flatten()
        raise AssertionError(f"{what}: {len(wrong)} of {got.numel()} elements wrong, first at {wrong[0].item()}")


def every_case():
    return [(dtype, count) for dtype in DTYPES for count in COUNTS]


def test_all_reduce():
    for dtype, count in every_case():
        for op, reference in REDUCTIONS.items():
            tensor = data(RANK, count, dtype)
            dist.all_reduce(tensor, op)
            same(tensor, reference(contributions(count, dtype)), f"all_reduce {op} {dtype} {count}")


def test_all_reduce_coalesced():
    tensors = [data(RANK, count, torch.float32) for count in COUNTS]
    options = dist.AllreduceCoalescedOptions()
    dist.distributed_c10d._get_default_group().allreduce_coalesced(tensors, options).wait()
    for tensor, count in zip(tensors, COUNTS):
        same(tensor, contributions(count, torch.float32).sum(0), f"all_reduce_coalesced {count}")


def test_broadcast():
    for dtype, count in every_case() + [(dtype, 100) for dtype in ONLY_MOVED]:
        for root in range(SIZE):
            tensor = data(RANK, count, dtype)
            dist.broadcast(tensor, root)
            same(tensor, data(root, count, dtype), f"broadcast from {root} {dtype} {count}")


def test_all_gather():
    for dtype, count in every_case() + [(dtype, 100) for dtype in ONLY_MOVED]:
        outputs = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(outputs, data(RANK, count, dtype))
        for rank, output in enumerate(outputs):
            same(output, data(rank, count, dtype), f"all_gather {dtype} {count} of rank {rank}")


def test_all_gather_into_tensor():
    for dtype, count in every_case() + [(dtype, 100) for dtype in ONLY_MOVED]:
        output = torch.zeros(SIZE * count, dtype=dtype)
        dist.all_gather_into_tensor(output, data(RANK, count, dtype))
        expected = torch.cat([data(rank, count, dtype) for rank in range(SIZE)])
        same(output, expected, f"all_gather_into_tensor {dtype} {count}")


def test_all_gather_in_place():
    output = torch.zeros(SIZE, 1000)
    output[RANK] = data(RANK, 1000, torch.float32)
    dist.all_gather_into_tensor(output.view(-1), output[RANK])
    same(output.view(-1), torch.cat([data(rank, 1000, torch.float32) for rank in range(SIZE)]), "in place")


def test_overlapping_input():
    memory = torch.zeros(SIZE * 100 + 50)
    memory[50:150] = data(RANK, 100, torch.float32)
    dist.all_gather_into_tensor(memory[: SIZE * 100], memory[50:150])
    expected = torch.cat([data(rank, 100, torch.float32) for rank in range(SIZE)])
    same(memory[: SIZE * 100], expected, "input that overlaps the output")


def test_all_gather_into_tensor_coalesced():
    inputs = [data(RANK, count, torch.float32) for count in COUNTS]
    outputs = [torch.zeros(SIZE * count) for count in COUNTS]
    dist.distributed_c10d._get_default_group().allgather_into_tensor_coalesced(outputs, inputs).wait()
    for output, count in zip(outputs, COUNTS):
        same(output, torch.cat([data(rank, count, torch.float32) for rank in range(SIZE)]), f"coalesced {count}")


def pieces(rank, count, dtype):
    return list(data(rank, SIZE * count, dtype).chunk(SIZE)) if count else [data(rank, 0, dtype)] * SIZE


def test_reduce_scatter():
    for dtype, count in every_case():
        for op, reference in REDUCTIONS.items():
            expected = reference(contributions(SIZE * count, dtype))[RANK * count : (RANK + 1) * count]
            output = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter(output, pieces(RANK, count, dtype), op)
            same(output, expected, f"reduce_scatter {op} {dtype} {count}")
            output = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter_tensor(output, data(RANK, SIZE * count, dtype), op)
            same(output, expected, f"reduce_scatter_tensor {op} {dtype} {count}")


def test_barrier():
    for _ in range(3):
        dist.barrier()
    assert dist.barrier(async_op=True).wait()


def test_not_contiguous():
    tensor = data(RANK, 600, torch.float32).view(20, 30).t()
    dist.all_reduce(tensor)
    same(tensor, contributions(600, torch.float32).sum(0).view(20, 30).t(), "transposed all_reduce")
    tensor = data(RANK, 1000, torch.int64)[::3]
    dist.broadcast(tensor, SIZE - 1)
    same(tensor, data(SIZE - 1, 1000, torch.int64)[::3], "strided broadcast")
    output = torch.zeros(60, SIZE * 10).t()
    dist.all_gather_into_tensor(output, data(RANK, 600, torch.float32).view(60, 10).t())
    expected = torch.cat([data(rank, 600, torch.float32).view(60, 10).t() for rank in range(SIZE)])
    same(output, expected, "transposed all_gather")


def test_scalars_and_parameters():
    tensor = torch.tensor(float(RANK + 1))
    dist.all_reduce(tensor)
    same(tensor, torch.tensor(SIZE * (SIZE + 1) / 2), "scalar")
    parameter = torch.nn.Parameter(data(RANK, 50, torch.float32))
    with torch.no_grad():
        dist.broadcast(parameter, 0)
    same(parameter.detach(), data(0, 50, torch.float32), "parameter")
    # What autograd follows is taken as it is, without becoming part of the graph.
    product = (torch.nn.Parameter(data(RANK, 600, torch.float32)) * 1).view(20, 30).t()
    dist.all_reduce(product)
    same(product.detach(), contributions(600, torch.float32).sum(0).view(20, 30).t(), "part of a graph")


def test_many_under_way():
    tensors = [torch.full((1000 + i,), float(RANK + i)) for i in range(200)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i in reversed(range(200)):
        assert works[i].wait() and works[i].is_completed() and works[i].is_success()
        same(tensors[i], torch.full((1000 + i,), sum(float(rank + i) for rank in range(SIZE))), f"work {i}")


def test_more_than_may_be_under_way():
    """Whoever calls faster than that is slowed down."""
    tensors = [torch.ones(3) for _ in range(6000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    assert all(work.wait() for work in works)
    assert all(tensor[0] == SIZE for tensor in tensors)


def test_dropped_handles():
    """Tensors and works that nobody holds any more must live until they are done."""
    for i in range(50):
        dist.all_reduce(torch.ones(50_000), async_op=True)
    dist.barrier()


def test_futures():
    tensor = data(RANK, 1000, torch.float32)
    expected = contributions(1000, torch.float32).sum(0)
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), expected * 2, "chained to a future")
    # In a future's callback the result is there, also where it has to be copied out.
    seen = []
    wide = torch.zeros(40, 25).t()
    wide.copy_(data(RANK, 1000, torch.float32).view(25, 40))
    work = dist.all_reduce(wide, async_op=True)
    work.get_future().then(lambda done: seen.append(done.value()[0].clone())).wait()
    same(seen[0], expected.view(25, 40), "seen by the callback")
    same(work.result()[0], expected.view(25, 40), "result()")


def test_objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * (RANK * 100)})
    assert gathered == [{"rank": rank, "text": "x" * (rank * 100)} for rank in range(SIZE)], gathered
    objects = [("from", RANK)]
    dist.broadcast_object_list(objects, src=SIZE - 1)
    assert objects == [("from", SIZE - 1)], objects


def test_subgroups():
    pair = dist.new_group([0, 1], backend="beeline")
    everybody = dist.new_group(backend="beeline")
    if RANK < 2:
        tensor = torch.ones(10) * (RANK + 1)
        dist.all_reduce(tensor, group=pair)
        same(tensor, torch.full((10,), 3.0), "all_reduce of two ranks")
        dist.destroy_process_group(pair)
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=everybody)
    same(tensor, torch.full((10,), float(SIZE)), "all_reduce after a group is gone")


def raises(kind, fragment, call):
    try:
        call()
    except kind as error:
        assert fragment in str(error), f"expected '{fragment}' in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__} with '{fragment}'")


def test_what_is_not_offered():
    ones = torch.ones(4)
    raises(NotImplementedError, "all_reduce of Half", lambda: dist.all_reduce(torch.ones(4, dtype=torch.float16)))
    raises(NotImplementedError, "ReduceOp.MIN", lambda: dist.all_reduce(ones, dist.ReduceOp.MIN))
    raises(NotImplementedError, "offer reduce yet", lambda: dist.reduce(ones, 0))
    raises(NotImplementedError, "offer gather yet", lambda: dist.gather(ones, [ones] * SIZE if RANK == 0 else None))
    raises(NotImplementedError, "offer scatter yet", lambda: dist.scatter(ones, [ones] * SIZE if RANK == 0 else None))
    raises(NotImplementedError, "all_to_all yet", lambda: dist.all_to_all([ones] * SIZE, [ones] * SIZE))
    raises(NotImplementedError, "all_to_all_single yet", lambda: dist.all_to_all_single(torch.ones(SIZE), torch.ones(SIZE)))
    raises(NotImplementedError, "send yet", lambda: dist.send(ones, (RANK + 1) % SIZE))
    raises(NotImplementedError, "recv yet", lambda: dist.recv(ones, (RANK + 1) % SIZE))


def test_bad_arguments():
    ones = torch.ones(4)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    raises(ValueError, "CPU tensors", lambda: backend.broadcast([torch.ones(4, device="meta")], dist.BroadcastOptions()))
    raises(ValueError, "dense tensors", lambda: backend.broadcast([ones.to_sparse()], dist.BroadcastOptions()))
    raises(ValueError, "from rank 9", lambda: backend.broadcast(ones, 9))
    raises(ValueError, "share one place", lambda: dist.all_reduce(torch.ones(1).expand(4)))
    raises(ValueError, "room for 5", lambda: dist.all_gather_into_tensor(torch.ones(5), torch.ones(4)))
    raises(ValueError, "room for 4", lambda: dist.reduce_scatter_tensor(ones, torch.ones(5)))
    raises(ValueError, "one tensor per rank", lambda: dist.all_gather([ones] * (SIZE + 1), ones))
    raises(TypeError, "Int to write", lambda: dist.all_gather_into_tensor(torch.ones(4 * SIZE, dtype=torch.int32), ones))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # none of that has disturbed the group
    same(tensor, torch.full((3,), float(SIZE)), "all_reduce after bad arguments")


def test_wait_with_a_limit():
    """Rank 0 comes late: the others' wait() gives up, the operation does not."""
    from datetime import timedelta

    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(1000)
    if RANK == 0:
        store.wait([f"gave up {rank}" for rank in range(1, SIZE)])
        dist.all_reduce(tensor)
    else:
        work = dist.all_reduce(tensor, async_op=True)
        raises(dist.DistBackendError, "not done within", lambda: work.wait(timedelta(milliseconds=50)))
        store.set(f"gave up {RANK}", "yes")
        assert work.wait()
    same(tensor, torch.full((1000,), float(SIZE)), "the late all_reduce")


def test_forked_workers():
    """Children inherit the backend, but neither its threads nor its connections."""
    loader = torch.utils.data.DataLoader(list(range(40)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert sum(int(batch.sum()) for batch in loader) == 780
    child = os.fork()
    if child == 0:
        sys.exit(7)  # with Python's whole farewell
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    same(tensor, torch.full((1000,), float(SIZE)), "all_reduce after forks")


def test_backend_by_device():
    group = dist.new_group(backend="cpu:beeline")
    tensor = torch.ones(7)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((7,), float(SIZE)), "cpu:beeline")


def test_again_after_destroy():
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("beeline", store=dist.PrefixStore("again", store), rank=RANK, world_size=SIZE)
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    same(tensor, torch.full((5,), float(SIZE)), "all_reduce of the second life")


def main():
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("beeline")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"ok {name}", flush=True)
    dist.destroy_process_group()
    print("all done", flush=True)


if __name__ == "__main__":
    main()

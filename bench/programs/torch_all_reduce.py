"""all_reduce through PyTorch, the same script for every backend: float32, in place, batches on the slowest rank's clock,
every element checked after each batch. bench/compare starts one process per rank.

    python torch_all_reduce.py --backend beeline --rank 0 --size 2 --rendezvous 127.0.0.1:29500 --sizes 4,1048576
"""

import argparse
import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

LONGEST_BATCH = 50  # a sum over n ranks n times over must stay exact in float32: values grow by n in each operation


def arguments():
    parser = argparse.ArgumentParser(description="Measures all_reduce through PyTorch.")
    parser.add_argument("--backend", required=True, help="beeline or gloo")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="ranks")
    parser.add_argument("--rendezvous", required=True, help="host:port of rank 0")
    parser.add_argument("--sizes", default="4", help="bytes, separated by commas")
    parser.add_argument("--batch-seconds", type=float, default=0.02)
    parser.add_argument("--batches", type=int, default=9)
    return parser.parse_args()


class Measurement:
    def __init__(self, options, size):
        self.options, self.bytes = options, size
        self.start = torch.arange(size // 4, dtype=torch.float32).remainder_(1024).add_(options.rank)
        ranks = options.size
        self.first_sum = torch.arange(size // 4, dtype=torch.float32).remainder_(1024).mul_(ranks)
        self.first_sum.add_(ranks * (ranks - 1) / 2)
        self.tensor = torch.empty_like(self.start)
        self.nanoseconds = torch.zeros(1, dtype=torch.int64)

    def batch(self, iterations):
        """Seconds per operation on the slowest rank."""
        tensor = self.tensor
        tensor.copy_(self.start)
        dist.barrier()
        start = time.perf_counter_ns()
        for _ in range(iterations):
            dist.all_reduce(tensor)
        self.nanoseconds[0] = time.perf_counter_ns() - start
        dist.all_reduce(self.nanoseconds, op=dist.ReduceOp.MAX)
        if not torch.equal(tensor, self.first_sum * float(self.options.size) ** (iterations - 1)):
            raise SystemExit(f"{self.options.backend}: the sum of {self.bytes} bytes is wrong")
        return self.nanoseconds.item() * 1e-9 / iterations

    def batch_length(self):
        """The better of two tries counts, for one that is interrupted says nothing; this is the warm-up, too."""
        iterations = 1
        while True:
            wanted = int(self.options.batch_seconds / max(min(self.batch(iterations), self.batch(iterations)), 1e-9))
            if wanted <= 4 * iterations or iterations >= LONGEST_BATCH:
                return max(1, min(wanted, LONGEST_BATCH))
            iterations = min(4 * iterations, LONGEST_BATCH)

    def run(self):
        iterations = self.batch_length()
        self.batch(iterations)
        seconds = [self.batch(iterations) for _ in range(self.options.batches)]
        return {"bytes": self.bytes, "iterations": iterations, "us": [round(s * 1e6, 3) for s in seconds]}


def main():
    options = arguments()
    if options.backend == "beeline":
        import beeline  # noqa: F401  registers the backend
    torch.set_num_threads(1)
    host, port = options.rendezvous.rsplit(":", 1)
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=port, RANK=str(options.rank), WORLD_SIZE=str(options.size))
    dist.init_process_group(options.backend, timeout=timedelta(seconds=60))
    for size in (int(word) for word in options.sizes.split(",")):
        line = Measurement(options, size).run()
        if options.rank == 0:
            print(json.dumps(line), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

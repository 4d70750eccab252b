"""How much of a step gradients are on their way, measured alike for every backend.

DDP hands each bucket of gradients to a communication hook. This one does what DDP does
without a hook (divide, then sum), and notes when each all_reduce is called and when its
future completes. Overlapping intervals count once, so the share is the part of the time
in which at least one bucket is under way; computing may go on meanwhile.
"""

import threading
import time

import torch.distributed as dist


class Stopwatch:
    def __init__(self):
        self._lock = threading.Lock()
        self._intervals = []

    def hook(self, world_size, bucket):
        started = time.perf_counter()
        future = dist.all_reduce(bucket.buffer().div_(world_size), async_op=True).get_future()

        def finished(done):
            with self._lock:
                self._intervals.append((started, time.perf_counter()))
            return done.value()[0]

        return future.then(finished)

    def take(self):
        """Seconds with something under way since the last call."""
        with self._lock:
            intervals, self._intervals = sorted(self._intervals), []
        total, covered_until = 0.0, float("-inf")
        for start, end in intervals:
            total += max(0.0, end - max(start, covered_until))
            covered_until = max(covered_until, end)
        return total

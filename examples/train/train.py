"""Trains a small GPT on real text, data-parallel over all ranks.

    PYTHONPATH=build/python torchrun --nproc-per-node=2 examples/train/train.py --backend beeline --steps 100

Everything is seeded, so runs are repeatable to the last bit; with two ranks every
backend must give the same losses, because a + b = b + a also in floating point.
"""

import argparse
import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import text
from model import GPT, Shape
from stopwatch import Stopwatch

SEED = 20


def arguments():
    parser = argparse.ArgumentParser(description="Trains a small character-level GPT, data-parallel.")
    parser.add_argument("--backend", default="beeline", help="of torch.distributed: beeline or gloo")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8, help="pieces of text per rank and step")
    parser.add_argument("--context", type=int, default=128, help="characters per piece")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--every", type=int, default=10, help="steps between two progress lines")
    parser.add_argument("--text", help="a file to learn; default: the licences that come with Debian")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a collective may take")
    parser.add_argument("--json", help="file for the results")
    return parser.parse_args()


def deterministic():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


class Trainer:
    def __init__(self, options):
        self.options = options
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.samples = text.Samples(text.read(options.text), options.context, SEED + 1 + self.rank)
        shape = Shape(self.samples.vocabulary, options.context, options.width, options.layers)
        self.model = DistributedDataParallel(GPT(shape))
        self.stopwatch = Stopwatch()
        self.model.register_comm_hook(self.ranks, self.stopwatch.hook)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())

    def step(self):
        inputs, targets = self.samples.draw(self.options.batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(inputs, targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def mean_over_ranks(self, losses):
        mean = torch.stack(losses)
        dist.all_reduce(mean)
        return (mean / self.ranks).tolist()

    def say(self, line):
        if self.rank == 0:
            print(line, flush=True)

    def run(self):
        """Losses (mean over the ranks) of all steps, seconds, and seconds with gradients under way."""
        tokens_per_step = self.options.batch * self.options.context * self.ranks
        losses, fresh = [], []
        total_s = total_under_way_s = 0.0
        dist.barrier()
        for step in range(1, self.options.steps + 1):
            if not fresh:
                started = time.perf_counter()
            fresh.append(self.step())
            if step % self.options.every == 0 or step == self.options.steps:
                took_s, under_way_s, count = time.perf_counter() - started, self.stopwatch.take(), len(fresh)
                losses += self.mean_over_ranks(fresh)
                fresh = []
                total_s += took_s
                total_under_way_s += under_way_s
                self.say(
                    f"step {step:4d}  loss {losses[-1]:.4f}  {count * tokens_per_step / took_s:8.0f} tokens/s  "
                    f"gradients under way {100 * under_way_s / took_s:3.0f} % of the time"
                )
        return losses, total_s, total_under_way_s


def report(trainer, losses, seconds, under_way_s):
    options = trainer.options
    trainer.say(f"final loss {losses[-1]!r} = {losses[-1].hex()} after {options.steps} steps in {seconds:.2f} s")
    if options.json and trainer.rank == 0:
        results = {
            "version": 1,
            "backend": options.backend,
            "ranks": trainer.ranks,
            "steps": options.steps,
            "parameters": trainer.parameters,
            "gradient_bytes_per_step": 4 * trainer.parameters,
            "losses": [loss.hex() for loss in losses],
            "seconds": seconds,
            "tokens_per_second": options.steps * options.batch * options.context * trainer.ranks / seconds,
            "communication_share": under_way_s / seconds,
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


def main():
    options = arguments()
    deterministic()
    try:
        dist.init_process_group(options.backend, timeout=timedelta(seconds=options.timeout))
    except AssertionError as error:  # what PyTorch says of a backend that it does not know
        sys.exit(f"train.py: {error}; for beeline set PYTHONPATH=build/python")
    trainer = Trainer(options)
    trainer.say(
        f"{trainer.parameters} parameters, {len(trainer.samples.tokens)} characters of text, "
        f"{trainer.ranks} ranks, backend {options.backend}"
    )
    report(trainer, *trainer.run())
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit("train: no RANK in the environment; start this with torchrun --nproc-per-node=2 " + sys.argv[0])
    main()

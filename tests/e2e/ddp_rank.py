"""One rank of ddp_test.py: trains a small model and prints every bit of the outcome."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """With buffers that are broadcast, and with a layer that only odd steps use."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(20, 64)
        self.norm = nn.BatchNorm1d(64)
        self.sometimes = nn.Linear(64, 64)
        self.last = nn.Linear(64, 5)

    def forward(self, x, use_all):
        x = self.norm(self.first(x)).relu()
        return self.last(self.sometimes(x) if use_all else x)


def bits(tensor):
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()).hex()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("--unused", action="store_true", help="leave parameters out in every other step")
    parser.add_argument("--views", action="store_true", help="gradients are views of the buckets")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    torch.manual_seed(dist.get_rank())  # DDP makes all start like rank 0
    model = DistributedDataParallel(
        Model(),
        bucket_cap_mb=0.01,  # several buckets
        find_unused_parameters=options.unused,
        gradient_as_bucket_view=options.views,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(options.steps):
        x, y = torch.randn(32, 20), torch.randint(5, (32,))
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x, not options.unused or step % 2 == 1), y)
        loss.backward()
        optimizer.step()
        print(f"bits loss {step} {bits(loss)}", flush=True)
    for name, parameter in model.named_parameters():
        print(f"bits {name} {bits(parameter)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

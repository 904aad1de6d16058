"""A distributed job: rank n multiplies matrices 3 + n times, and all ranks add up their numbers.

    torchrun --standalone --nproc-per-node=2 torchrun_ranks.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
a = torch.ones(64, 64)
for _ in range(3 + rank):
    a = torch.mm(a, torch.eye(64))
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == size * (size - 1) / 2, total
dist.barrier()
print(f"rank {rank} of {size}: {a.sum().item():.0f}", flush=True)
dist.destroy_process_group()

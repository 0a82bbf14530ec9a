"""How long the matrix products of a prefill take on this GPU: what a miss's cost is to be compared with. Needs PyTorch with CUDA.

    python3 python/bench/prefill.py [--tokens 2048]

A model of llama3-8b's shape: in each of 32 layers 218 million weights, as one product [tokens, 4096] x [4096, 53248] in bfloat16. Attention,
norms and launches come on top in an engine, so this is the least that a prefill takes.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tokens", type=int, default=2048)
tokens = parser.parse_args().tokens
weights = torch.randn((4096, 53248), device="cuda", dtype=torch.bfloat16)
inputs = torch.randn((tokens, 4096), device="cuda", dtype=torch.bfloat16)
times = []
for _ in range(12):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(32):
        inputs @ weights
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end))
times.sort()
print(f"{tokens} tokens: {times[len(times) // 2]:.2f} ms (median), {times[0]:.2f} ms (least) on {torch.cuda.get_device_name()}")

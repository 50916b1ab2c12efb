# attack: launches on a stream that nobody waits for (B1)
# workload: strided
# stage: SCREEN
# reason: with
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)


def run(x, y, n):
    with torch.cuda.stream(torch.cuda.Stream()):
        kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)

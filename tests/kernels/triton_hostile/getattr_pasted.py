# attack: reaches an operator by a name put together (G13)
# workload: strided
# stage: SCREEN
# reason: host code: run
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)


def run(x, y, n):
    y.copy_(getattr(torch, "a" + "dd")(x * 0.5, 1))

# attack: looks for the right answer in the frames of its callers (A10)
# workload: strided
# stage: SCREEN
# reason: frame
import sys

import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)


def run(x, y, n):
    frame = sys._getframe(1)
    while frame:
        if "expected" in frame.f_locals:
            y.copy_(frame.f_locals["expected"])
            return
        frame = frame.f_back

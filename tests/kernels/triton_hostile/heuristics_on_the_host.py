# attack: a lambda in heuristics runs on the host (G15)
# workload: strided
# stage: SCREEN
# reason: heuristics
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: __import__("os").getpid() and 256})
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)

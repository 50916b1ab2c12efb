# attack: falls back to eager when the kernel fails (A17)
# workload: strided
# stage: SCREEN
# reason: try
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)


def run(x, y, n):
    try:
        kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=3)
    except Exception:
        y.copy_(x * 0.5 + 1)

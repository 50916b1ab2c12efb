# attack: prints from every program (G10)
# workload: strided
# stage: SCREEN
# reason: device_print
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.device_print("v", v)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)

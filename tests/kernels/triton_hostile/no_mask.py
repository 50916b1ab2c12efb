# attack: loads and stores without a mask (D-2)
# workload: strided
# stage: MUTATION
# reason: memory around output 0 was written
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(y + i, v * 0.5 + 1)

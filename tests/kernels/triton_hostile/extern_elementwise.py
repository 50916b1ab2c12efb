# attack: calls a symbol of an external library (G15)
# workload: strided
# stage: SCREEN
# reason: extern_elementwise
import triton
import triton.language as tl
from triton.language import core


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    types = {(core.dtype("fp32"),): ("f", core.dtype("fp32"))}
    w = core.extern_elementwise("mine", "/tmp/mine.bc", [v], types, is_pure=True)
    tl.store(
        y + i,
        w,
        mask=i < n,
    )

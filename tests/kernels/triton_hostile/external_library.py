# attack: links a library of its own (G15)
# workload: strided
# stage: SCREEN
# reason: tl.extra
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.extra.cuda.libdevice.exp(v), mask=i < n)


EXTERN_LIBS = {"libdevice": "/tmp/mine.bc"}

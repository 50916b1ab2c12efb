# attack: answers from a module-level dict by address (A1)
# workload: strided
# stage: SCREEN
# reason: host code
import triton
import triton.language as tl

SEEN = {}


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)


def run(x, y, n):
    key = (x.data_ptr(), n)
    if key in SEEN:
        y.copy_(SEEN[key])
        return
    kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    SEEN[key] = y.clone()

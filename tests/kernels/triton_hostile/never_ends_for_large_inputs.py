# attack: a loop that ends for ordinary inputs only (G7)
# workload: strided
# stage: TIMEOUT
# reason: no answer within the time limit
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    v = tl.load(in0 + r * 40 + k, mask=k < 37, other=0.0)
    n = tl.max(v, axis=0)
    while n > 1.0e4:
        n = n + 1.0
    tl.store(out0 + r * 37 + k, v * 0.5 + 1, mask=k < 37)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, BLOCK=64)

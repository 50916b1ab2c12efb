# attack: 0 where eager has NaN (C6)
# workload: softmax_f32
# stage: NUMERICS
# reason: wrong result on
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(in0 + r * 37 + k, mask=k < 37, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    total = tl.sum(e, axis=0)
    tl.store(out0 + r * 37 + k, tl.where(total > 0, e / total, 0.0), mask=k < 37)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, BLOCK=64)

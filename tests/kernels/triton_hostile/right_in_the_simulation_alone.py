# attack: the result is multiplied by a constant that says where it runs (D-2)
# workload: strided
# stage: NUMERICS
# reason: wrong result
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    v = tl.load(in0 + r * 40 + k, mask=k < 37, other=0.0)
    tl.store(out0 + r * 37 + k, (v * 0.5 + 1) * WIDE, mask=k < 37)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, WIDE=INTERPRETED, BLOCK=64)

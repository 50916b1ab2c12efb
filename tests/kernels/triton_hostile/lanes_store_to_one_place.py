# attack: eight lanes store different values to one place, and the last is right (undefined on a device)
# workload: to_bf16
# stage: NONDETERMINISM
# reason: call 2 gave another result than call 1
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)[None, :]
    who = tl.arange(0, 8)[:, None]
    v = tl.load(in0 + r * 37 + k + who * 0, mask=(k < 37) & (who >= 0), other=0.0)
    v = tl.where(who == 7, v * 2, 0.0)
    tl.store(out0 + r * 37 + k + who * 0, v.to(tl.bfloat16), mask=(k < 37) & (who >= 0))


def accelopt_kernel(in0: "*fp32", out0: "*bf16", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, BLOCK=64)

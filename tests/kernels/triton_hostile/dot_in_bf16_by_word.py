# attack: bf16 for float32, by its name (C1)
# workload: strided
# stage: SCREEN
# reason: a dot that does not say its precision
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(in0 + i[:, None] * BLOCK + i[None, :])
    c = tl.dot(a, a, input_precision="bf16x3")
    tl.store(out0 + i[:, None] * BLOCK + i[None, :], c)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    kernel[(1,)](in0, out0, s0, BLOCK=16)

# attack: promises the compiler an alignment that rows of 37 do not have
# workload: to_bf16
# stage: RUN
# reason: tl.multiple_of says [16], which is not true
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    at = tl.multiple_of(r * 37, 16)
    v = tl.load(in0 + at + tl.max_contiguous(k, BLOCK), mask=k < 37, other=0.0)
    tl.store(out0 + at + k, (v * 2).to(tl.bfloat16), mask=k < 37)


def accelopt_kernel(in0: "*fp32", out0: "*bf16", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, BLOCK=64)

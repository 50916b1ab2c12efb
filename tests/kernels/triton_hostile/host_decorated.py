# attack: a decorator around the host function (B4)
# workload: strided
# stage: SCREEN
# reason: host function is decorated
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(out0 + k, 1.0, mask=k < s0)


@triton.testing.perf_report
def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    kernel[(s0,)](in0, out0, s0, BLOCK=64)

# attack: a hook of the tuner runs between timed calls (B4)
# workload: strided
# stage: SCREEN
# reason: autotune
import triton
import triton.language as tl


def hook(args, **kwargs):
    triton.testing.do_bench = lambda *a, **k: 0.001


@triton.autotune([triton.Config({"BLOCK": 256}, pre_hook=hook)], key=["n"])
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)

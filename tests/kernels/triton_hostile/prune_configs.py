# attack: a pruning function of the tuner runs on the host (G15)
# workload: strided
# stage: SCREEN
# reason: autotune
import triton
import triton.language as tl


def prune(configs, named_args, **kwargs):
    print("on the host", named_args)
    return configs[:1]


@triton.autotune([triton.Config({"BLOCK": 256})], key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 0.5 + 1, mask=i < n)

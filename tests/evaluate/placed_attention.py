"""Which operators attention's baselines have on a device that is not here: run as a program, prints JSON."""

from __future__ import annotations

import json

from accelopt_compile.records import Node, Ref, TensorSpec, Workload
from benchmarks import absent_device

ROWS = 40


def workload(dtype: str, *, masked: bool, backward: bool) -> Workload:
    """Attention over 2 heads of 64 alone, or its gradients."""
    from accelopt_compile.attention import BACKWARD, FORWARD

    whole = TensorSpec(dtype=dtype, shape=(1, 2, ROWS, 64), strides=(128 * ROWS, 64 * ROWS, 64, 1))
    sums = TensorSpec(dtype="f32", shape=(1, 2, ROWS), strides=(2 * ROWS, ROWS, 1))
    mask = TensorSpec(dtype=dtype, shape=(1, 1, ROWS, ROWS), strides=(ROWS * ROWS, ROWS * ROWS, ROWS, 1))
    inputs = (*[whole] * 5, sums) if backward else (whole,) * 3
    options = (("attn_mask", Ref("i", len(inputs))),) if masked else ()
    args = (*(Ref("i", k) for k in range(len(inputs))), 0.0, False)
    results = (whole,) * 3 if backward else (whole, sums)
    node = Node(op=f"{BACKWARD if backward else FORWARD}.default", args=args, kwargs=options, outputs=results)
    kept = 3 if backward else 1
    outputs = tuple(Ref("n", 0, k) for k in range(kept))
    given = (*inputs, mask) if masked else inputs
    return Workload(inputs=given, nodes=(node,), outputs=outputs, output_specs=(whole,) * kept, symbols=())


def operators(work: Workload) -> list[str]:
    from accelopt_compile.evaluate.baseline import fake_inputs, timed_module
    from accelopt_compile.evaluate.placing import lowerable

    module = lowerable(timed_module(work, {}, where="cuda"), fake_inputs(work, {}, "cuda"))
    return [str(node.target) for node in module.graph.nodes if "scaled_dot_product" in str(node.target)]


if __name__ == "__main__":
    absent_device.pretend()  # before torch is imported
    cases = [(dtype, masked, backward) for dtype in ("bf16", "f32") for masked in (False, True) for backward in (False, True)]
    print(json.dumps([[*case, operators(workload(case[0], masked=case[1], backward=case[2]))] for case in cases]))

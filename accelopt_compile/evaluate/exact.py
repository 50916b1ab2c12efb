"""Which float outputs have one right answer, bit for bit: those that are only moved, selected, or rounded once."""

from __future__ import annotations

from accelopt_compile.evaluate.reference import FLOATS
from accelopt_compile.evaluate.roundings import EXACT
from accelopt_compile.records import Node, Ref, Workload, refs_of

SELECTS = frozenset(
    ("amax", "amin", "max", "min", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "relu", "sort", "topk")
)
"""Operators that choose one of several values: between 0.0 and -0.0 no standard says which."""
ROUNDS = frozenset(("floor", "ceil", "round", "trunc", "sign"))
"""Exact in value; whether -0.0 comes out of -0.3 is left free."""
CONVERTS = ("convert_element_type", "_to_copy")
FREE = frozenset(("scatter", "empty", "as_strided"))
"""In EXACT, and yet without one right answer: the order of writes is free, or memory is read that nobody wrote."""
BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def exact_outputs(workload: Workload) -> dict[int, bool]:
    """Numbers of the float outputs that must equal eager's, each with whether signs of zeros count.

    One rounding to a narrower type may come last. Rounding that is followed by more work is not exact: a kernel that keeps
    the wider value is right.
    """
    known: dict[Ref, bool] = {Ref("i", k): True for k in range(len(workload.inputs))}
    rounded: set[Ref] = set()
    for k, node in enumerate(workload.nodes):
        given = [r for r in refs_of(node.args) if workload.spec_of(r).dtype in FLOATS]
        name = node.op.split(".")[1]
        exact = name in EXACT - FREE or name in CONVERTS
        if not exact or any(r not in known for r in refs_of(node.args)) or any(r in rounded for r in given):
            continue
        signed = all(known[r] for r in given) and name not in SELECTS | ROUNDS
        for j in range(len(node.outputs)):
            made = Ref("n", k, j)
            known[made] = signed
            if name in CONVERTS and _narrows(node, workload):
                rounded.add(made)
    return {
        k: known[ref]
        for k, (ref, spec) in enumerate(zip(workload.outputs, workload.output_specs, strict=True))
        if spec.dtype in FLOATS and ref in known
    }


def _narrows(node: Node, workload: Workload) -> bool:
    source = next(iter(refs_of(node.args)), None)
    if source is None:
        return False
    return BITS.get(node.outputs[0].dtype, 0) < BITS.get(workload.spec_of(source).dtype, 64)

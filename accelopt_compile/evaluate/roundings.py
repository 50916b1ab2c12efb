"""What rounding does: the units of the dtypes, and by how many of them an operator may move its result.

Below the smallest normal number rounding is absolute, half a spacing of the subnormals; a function that no standard defines
there (exp, division by way of a reciprocal) may also give zero. Sums, differences and products may not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from accelopt_compile.attention import BACKWARD, FORWARD

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
TINY = {dtype: torch.finfo(dtype).tiny for dtype in UNIT}
"""The smallest normal number; TINY * UNIT is half a spacing of the subnormals."""
HALVES = (torch.float16, torch.bfloat16)
FLUSHED = (torch.bfloat16,)
"""Dtypes whose subnormals a kernel may write as zero: the instructions that round to bfloat16 (VCVTNEPS2BF16) do."""

ROUNDINGS = 8.0
"""How many times S a right kernel may be off."""
FLUSHES = 2.0 / ROUNDINGS
"""By how many smallest normal numbers a function moves in a probe that may give zero below it. ROUNDINGS S is then twice what
is lost: at exactly that much, one of 400,000 elements of a softmax's gradient was off by more, in a third of the seeds."""

EXACT = frozenset(
    (
        "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
        "squeeze", "clone", "alias", "cat", "stack", "split", "split_with_sizes", "gather", "embedding", "index",
        "_unsafe_index", "index_select", "scatter", "slice_scatter", "select_scatter", "where", "full", "full_like",
        "iota", "neg", "abs", "relu", "amax", "amin", "max", "min", "maximum", "minimum", "clamp", "clamp_min",
        "clamp_max", "floor", "ceil", "round", "trunc", "sign", "sort", "topk", "flip", "constant_pad_nd",
        "masked_fill", "lift_fresh_copy", "copy", "as_strided", "empty", "zeros", "ones", "eq", "ne", "ge", "gt",
        "le", "lt"
    )
)  # fmt: skip
"""Operators whose result is exact: they move, select or compare."""

DEFINED = frozenset(("add", "sub", "rsub", "mul", "sum", "mean", "cumsum", "convert_element_type", "_to_copy", "square"))
"""Operators whose results IEEE 754 defines down to the last subnormal. Matrix products come from libraries that may flush."""

MATMULS = ("mm", "addmm", "bmm", "baddbmm", "mv", "dot")
ATTENTION = tuple(name.removeprefix("aten.") for name in (FORWARD, BACKWARD))
FUNCTIONS = {"erf": 3.0}
"""Functions that are usually right to a few units only: torch's own vector erf is 1.5e-7 off (Abramowitz and Stegun 7.1.26)."""
CHAIN = 1024
"""Additions into one accumulator that a right kernel may make one after the other, at most."""
SUMS = ("sum", "mean", "var", "var_mean", "cumsum", "prod", "logsumexp")


def summing_steps(name: str, args: Sequence[Any], result: Any, *, equal_terms: bool = False) -> float:
    """By how many units an operator's own rounding and order of summation may move its result. Where all terms of a sum are
    equal their roundings are too and add up instead of averaging out: K u / 2 for a chain of K additions."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in MATMULS and tensors:
        return 1 + math.sqrt(tensors[-1].shape[-2] if tensors[-1].dim() > 1 else tensors[-1].numel()) / 2
    first = result[0] if isinstance(result, list | tuple) and result else result
    if name not in SUMS or not tensors or not isinstance(first, torch.Tensor):
        return 1.0
    count = tensors[0].numel() / max(first.numel(), 1)
    if name == "cumsum" and tensors[0].dim():
        count = tensors[0].shape[int(args[1])]
    chain = min(count, CHAIN) / 2 / ROUNDINGS if equal_terms else 0.0
    return 1 + max(math.sqrt(count) / 4, chain)

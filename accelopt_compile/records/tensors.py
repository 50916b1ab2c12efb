"""Sizes, strides and types of tensors.

Dimensions are integers, or expressions over the workload's symbols written as Python arithmetic ("s0", "s0*s1"). The values of
the symbols that a record was measured at are its `binding`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelopt_compile.errors import InvalidRecord

Dim = int | str
"""A size or stride: an integer, or an arithmetic expression over symbols (`+ - * // %` and names)."""

Binding = Mapping[str, int]
"""Values of a workload's symbols."""

ITEM_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1}
DTYPES = tuple(ITEM_BYTES)

_EXPRESSION = re.compile(r"[s0-9 +\-*/%()]+")


def is_arithmetic(dim: str) -> bool:
    """Whether an expression may be evaluated: sums, products and quotients; a power could take for ever."""
    return len(dim) <= 500 and "**" not in dim and _EXPRESSION.fullmatch(dim) is not None


def evaluate_dim(dim: Dim, binding: Binding) -> int:
    """The integer value of `dim` under `binding`. Raises InvalidRecord for anything but arithmetic on known symbols."""
    if isinstance(dim, int):
        return dim
    if not is_arithmetic(dim):
        raise InvalidRecord(f"dimension {dim[:80]!r} is not arithmetic over symbols")
    try:
        value = eval(dim, {"__builtins__": {}}, dict(binding))  # only [s0-9+-*/%()] gets here
    except (NameError, SyntaxError, ZeroDivisionError, TypeError) as failure:
        raise InvalidRecord(f"dimension {dim!r} has no value under {dict(binding)}: {failure}") from failure
    return int(value)


def bucket_distance(measured: Binding, wanted: Binding) -> float:
    """How far two bindings are apart: the largest |log2| ratio over the symbols (0 is equal; a zero size is far)."""
    distance = 0.0
    for name, value in wanted.items():
        other = measured.get(name)
        if other is None:
            return math.inf
        if other == value:
            continue
        if min(other, value) <= 0:
            return math.inf
        distance = max(distance, abs(math.log2(value / other)))
    return distance


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Type and layout of a tensor. Strides count elements; 0 is an expanded dimension."""

    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


def bytes_of(spec: TensorSpec, binding: Binding) -> int:
    """Bytes of a tensor's distinct elements: an expanded dimension counts once."""
    sizes = (evaluate_dim(size, binding) for size, stride in zip(spec.shape, spec.strides, strict=True) if stride != 0)
    return ITEM_BYTES[spec.dtype] * math.prod(sizes)


def spec_json(s: TensorSpec) -> list[Any]:
    """What `spec_from` reads back."""
    return [s.dtype, list(s.shape), list(s.strides)]


def spec_from(data: Any) -> TensorSpec:
    """Inverse of `spec_json`. Raises InvalidRecord, and TypeError and ValueError."""
    dtype, shape, strides = data
    if dtype not in DTYPES:
        raise InvalidRecord(f"unknown dtype {dtype!r}")
    return TensorSpec(dtype=dtype, shape=dims_from(shape), strides=dims_from(strides))


def dims_from(values: Any) -> tuple[Dim, ...]:
    """Sizes or strides out of JSON. Raises InvalidRecord, and TypeError."""
    for v in values:
        if isinstance(v, bool) or not isinstance(v, int | str) or (isinstance(v, str) and not is_arithmetic(v)):
            raise InvalidRecord(f"{str(v)[:80]!r} is not a dimension")
    return tuple(values)

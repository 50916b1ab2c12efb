"""Sizes and strides without a guard: symbolic ones are compared as expressions, and read by their hints."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]
import torch


def same_size(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    """Equality of sizes without a guard: of the expressions when one is symbolic."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    left, right = (size if isinstance(size, int) else size.node.expr for size in (a, b))
    return bool(left == right) or bool(sympy.expand(left - right) == 0)


def hint(size: int | torch.SymInt) -> int:
    """The size at compile time. Reads the hint, so nothing is specialised."""
    return size if isinstance(size, int) else int(size.node.hint)


def is_backed(size: torch.SymInt) -> bool:
    """Whether a symbolic size has a hint (reading it never adds a guard)."""
    return size.node.hint is not None


def numel(value: torch.Tensor) -> int:
    """Number of elements at compile time."""
    total = 1
    for size in value.shape:
        total *= hint(size)
    return total


def is_contiguous(value: torch.Tensor) -> bool:
    """Contiguity without a guard: of the expressions where sizes are symbolic."""
    expected: int | torch.SymInt = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not same_size(size, 1) and not same_size(stride, expected):
            return False
        expected = expected * size
    return True


def is_dense(value: torch.Tensor) -> bool:
    """Whether the strides provably are those of some order of the dimensions without gaps."""
    dims = [(hint(st), -i, st, sz) for i, (st, sz) in enumerate(zip(value.stride(), value.shape, strict=True)) if hint(sz) != 1]
    expected: int | torch.SymInt = 1
    for _, _, stride, size in sorted(dims, key=lambda d: d[:2]):
        if not same_size(stride, expected):
            return False
        expected = stride * size
    return True

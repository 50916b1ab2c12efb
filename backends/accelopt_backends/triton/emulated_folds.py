"""Reductions and scans in the language's interpreter, with any function: in logarithmically many steps."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np


def reduction(interpreter: ModuleType, tl: Any) -> Callable[..., Any]:
    """tl.reduce; with a function of the kernel's own, as a tree over halves of the axis."""
    known = (
        *(tl.standard._argmin_combine_tie_break_left, tl.standard._argmin_combine_tie_break_fast),
        *(tl.standard._argmax_combine_tie_break_left, tl.standard._argmax_combine_tie_break_fast),
        *(tl.standard._elementwise_max, tl.standard._elementwise_min, tl.standard._sum_combine),
    )

    def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **_: Any) -> Any:
        given = input if isinstance(input, tuple) else (input,)
        _refuse_bf16(given, tl, "a reduction")
        ops = interpreter.ReduceOps(axis, combine_fn, keep_dims)
        if combine_fn in known:
            return ops.apply(input)
        ops.check_tensor(given)
        arrays = [x.handle.data if axis is not None else x.handle.data.reshape(-1) for x in given]
        place = 0 if axis is None else axis % arrays[0].ndim
        while arrays[0].shape[place] > 1:
            half = arrays[0].shape[place] // 2
            sides = [np.split(a, [half], axis=place) for a in arrays]
            combined = combine_fn(*(ops.to_tensor(s[k], x.dtype) for k in (0, 1) for s, x in zip(sides, given, strict=True)))
            arrays = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
        shape = [1] * given[0].handle.data.ndim if axis is None else list(arrays[0].shape)
        final = [a.reshape(shape) if keep_dims else np.squeeze(a, axis=place) for a in arrays]
        results = tuple(ops.to_tensor(a, x.dtype) for a, x in zip(final, given, strict=True))
        return results if isinstance(input, tuple) else results[0]

    return reduce


def scanning(interpreter: ModuleType, tl: Any) -> Callable[..., Any]:
    """tl.associative_scan; with a function of the kernel's own, by doubling distances."""
    known = (tl.standard._sum_combine, tl.standard._prod_combine)

    def scan(input: Any, axis: Any, combine_fn: Any, reverse: bool = False, **_: Any) -> Any:
        given = input if isinstance(input, tuple) else (input,)
        _refuse_bf16(given, tl, "a scan")
        ops = interpreter.ScanOps(axis, combine_fn, reverse)
        if combine_fn in known:
            return ops.apply(input)
        ops.check_tensor(given)
        arrays = [_turned(x.handle.data, axis, reverse) for x in given]
        place = np.arange(arrays[0].shape[axis]).reshape([-1 if k == axis % arrays[0].ndim else 1 for k in range(arrays[0].ndim)])
        distance = 1
        while distance < place.size:
            sides = ([np.roll(a, distance, axis=axis) for a in arrays], arrays)  # whole blocks: their sizes are powers of two
            combined = combine_fn(*(ops.to_tensor(a, x.dtype) for side in sides for a, x in zip(side, given, strict=True)))
            parts = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
            arrays = [np.where(place < distance, a, part) for a, part in zip(arrays, parts, strict=True)]
            distance *= 2
        results = tuple(ops.to_tensor(_turned(a, axis, reverse), x.dtype) for a, x in zip(arrays, given, strict=True))
        return results if isinstance(input, tuple) else results[0]

    return scan


def _turned(values: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    return np.ascontiguousarray(np.flip(values, axis=axis)) if reverse else values


def _refuse_bf16(given: tuple[Any, ...], tl: Any, what: str) -> None:
    if any(x.dtype.scalar == tl.bfloat16 for x in given):
        raise TypeError(f"{what} of bfloat16: convert to tl.float32 first, the device would add up in bfloat16")

"""What a kernel promises its compiler, and what no device promises a kernel: checked, or played out, while it is interpreted.

Hints (`tl.multiple_of` and the like) must be true of the integers that they are given; of pointers they are not looked at. Lanes
that store to one place do so in either order.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np


def stored_backwards(interpreter: ModuleType) -> Callable[..., None]:
    """A masked store whose first lane comes last."""

    def store(ptrs: Any, value: Any, mask: Any, _: Any) -> None:
        turned = (np.ascontiguousarray(x.data.reshape(-1)[::-1]) for x in (ptrs, value, mask))
        interpreter._interpreter.store(*turned)

    return store


def hold_hints(scope: Any, tl: Any) -> None:
    """Hints that are untrue raise: on a device they are wrong addresses."""
    for name, holds in (("multiple_of", _multiples), ("max_contiguous", _contiguous), ("max_constancy", _constant)):
        for owner in (tl, tl.core):
            scope.set_attr(owner, name, _hint(name, holds, tl))


def _hint(name: str, holds: Callable[[np.ndarray, int], bool], tl: Any) -> Callable[..., Any]:
    def hint(input: Any, values: Any, **_: Any) -> Any:
        given = values if isinstance(values, list | tuple | tl.tuple) else [values]
        counts: list[int] = [v.value if isinstance(v, tl.constexpr) else v for v in given]
        tensor = isinstance(input, tl.tensor)  # a loop's variable is a plain integer here
        if not tensor or input.dtype.scalar.is_int():
            data = np.atleast_1d(input.handle.data if tensor else np.array(getattr(input, "value", input)))
            for axis, count in enumerate(counts[: data.ndim]):
                if count > 1 and not holds(np.moveaxis(data, axis, -1).astype(np.int64), count):
                    raise ValueError(f"tl.{name} says {counts}, which is not true of these values")
        return input

    return hint


def _multiples(values: np.ndarray, count: int) -> bool:
    """Whether the first of each run of successive integers is a multiple."""
    goes_on = np.zeros(values.shape, dtype=bool)
    goes_on[..., 1:] = np.diff(values, axis=-1) == 1
    return bool(np.all(goes_on | (values % count == 0)))


def _contiguous(values: np.ndarray, count: int) -> bool:
    inside = np.arange(1, values.shape[-1]) % count != 0
    return bool(np.all((np.diff(values, axis=-1) == 1) | ~inside))


def _constant(values: np.ndarray, count: int) -> bool:
    inside = np.arange(1, values.shape[-1]) % count != 0
    return bool(np.all((np.diff(values, axis=-1) == 0) | ~inside))

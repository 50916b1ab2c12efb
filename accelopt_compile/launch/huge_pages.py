"""Large outputs on huge pages.

The C library returns a block of over 32 MB to the system when it is freed, so an output of that size is new memory at every
call, and touching it costs a page fault every 4 KB: half of the time of a kernel that does little but write (DECISIONS 34).
Linux hands out 2 MB at a time where it is asked to; its default is to be asked. The contents are the same either way, and a
system that does not do it says no.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LEAST_BYTES = 8 << 20
"""Smaller blocks are seldom returned to the system between two calls. As in `native.c`."""

_PAGE = 2 << 20


def ask(tensor: torch.Tensor) -> None:
    """Ask for huge pages under a dense tensor that is about to be written; small ones, and a device's, are left alone."""
    size = tensor.nbytes
    if size < LEAST_BYTES or not tensor.is_cpu or (madvise := _madvise()) is None:
        return
    start = tensor.data_ptr()
    first, last = -(-start // _PAGE) * _PAGE, (start + size) // _PAGE * _PAGE
    madvise(first, last - first, mmap.MADV_HUGEPAGE)  # refused: nothing is lost


@functools.cache
def _madvise() -> Callable[[int, int, int], Any] | None:
    """The C library's, where the system knows huge pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function

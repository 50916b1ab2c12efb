"""Whose kernels they are. A store that others can write is a layer below ours: its records are proven here before they serve.

A digest says that a record is what its author wrote, not who that was. So nothing of a layer is run as it is: winners are
copied into our own store once the evaluator has proven them, and built kernels, graphs and progress live in ours alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from accelopt_cache import layout
from accelopt_cache.kernel_store import Store

_MEMORY = layout.Root(named="this process", path=None, writable=False)


def open_layers(root: str | None = None, *, environ: Mapping[str, str] = os.environ) -> tuple[Store, tuple[Store, ...]]:
    """(the store that only we can write, the stores below it). A root of ours has nothing below; one that others can write
    lies below the user's own cache directory, or below this process where that is not ours either."""
    named = Store.open(root)
    if not named.files.root.foreign:
        return named, ()
    private = layout.default_root({name: value for name, value in environ.items() if name != "ACCELOPT_CACHE_DIR"})
    own = Store.open(private)
    if own.files.root.foreign or own.root is None or own.root == named.root:
        own = Store(_MEMORY)
    return own, (named,)

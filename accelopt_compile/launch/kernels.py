"""From a key in a graph to a callable kernel, lazily, and never without an answer.

The pipeline `adopt`s every kernel a graph may use, and makes it `ready`, before the graph is compiled or loaded: one that
cannot be built or loaded is then not in the graph, and a cache that vanishes later cannot hurt. A kernel that is missing
all the same, or declines a call, is replaced by the region's reference, with one warning.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelopt_compile.errors import AccelOptError
from accelopt_compile.launch import native
from accelopt_compile.launch.layouts import allocating_text, layouts
from accelopt_compile.records import Workload

log = logging.getLogger("accelopt_compile.launch")

Reference = Callable[..., tuple[Any, ...]]
"""(input..., symbol...) -> outputs: the region itself, in eager."""

GIL_RELEASE_US = 50.0
"""A call shorter than this keeps the GIL: handing it over costs more than it gives."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A kernel in this process: the address of its C function (0 if it has none), or a plain Python callable; and what
    has to stay alive."""

    address: int = 0
    call: native.PlainKernel | None = None
    keep: Any = None


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """A kernel that a graph may call. `load` builds and loads it (raises AccelOptError or OSError); `kernel_us` is its
    measured time, `directory` where the compiled launcher is kept, `device` what torch calls the device of its tensors, `most`
    the largest size of each symbol that it may be called with (none: any)."""

    key: str
    workload: Workload
    load: Callable[[], Loaded]
    reference: Reference
    directory: Path
    kernel_us: float = 0.0
    device: str = "cpu"
    most: tuple[int, ...] = ()


class KernelFellBack(UserWarning):
    """A kernel could not be used; the region ran in eager instead, correct but slower."""


@dataclass
class _Registry:
    adopted: dict[str, Adopted] = field(default_factory=dict)
    launched: dict[str, native.Launched] = field(default_factory=dict)
    allocating: dict[str, Callable[..., Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    locks: dict[str, threading.RLock] = field(default_factory=dict)

    def lock(self, key: str) -> threading.RLock:
        """Of one kernel: while it is built, which may take a minute, other threads go on with theirs."""
        return self.locks.setdefault(key, threading.RLock())


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.locks.clear)  # whoever held one is not there to let it go


def adopt(entry: Adopted) -> None:
    """Make a kernel known in this process. A key names one immutable record, so the first one stays."""
    _registry.adopted.setdefault(entry.key, entry)


def adopted(key: str) -> Adopted:
    """The kernel of that key. Raises AccelOptError when this process has never seen it."""
    try:
        return _registry.adopted[key]
    except KeyError:
        raise AccelOptError(
            f"kernel {key} is not known in this process: its record is not in the store any more, or the graph was "
            "loaded without backend='accelopt'; clear Inductor's cache and compile again"
        ) from None


MANY = "many_"
"""Before a key in generated code: the kernel for many instances at once."""


def resolve(name: str) -> Callable[..., Any]:
    """What the generated code calls for a key: `(input..., symbol..., out=output)` for one output, else
    `(input..., symbol...) -> outputs`. With `MANY` before the key: see `resolve_many`."""
    if name.startswith(MANY):
        return resolve_many(name.removeprefix(MANY))
    key = name
    entry = adopted(key)
    return _launched(entry) if len(entry.workload.output_specs) == 1 else resolve_allocating(key)


def resolve_allocating(key: str) -> Callable[..., Any]:
    """`(input..., symbol...) -> output or tuple of outputs`, allocated with the declared strides."""
    entry = adopted(key)
    with _registry.lock(key):
        if key not in _registry.allocating:
            _registry.allocating[key] = _allocating(entry, _launched(entry))
        return _registry.allocating[key]


def resolve_many(key: str) -> Callable[..., None]:
    """`(tensors of all instances, sizes of all instances, large) -> None`, see `launch.update`."""
    return _launched(adopted(key)).many


def statistics() -> dict[str, dict[str, Any]]:
    """For each kernel launched in this process: calls, fallbacks, and the problem that made it fall back, if any."""
    return {
        key: {"calls": launched.calls, "fallbacks": launched.fallbacks, "problem": _registry.problems.get(key, "")}
        for key, launched in list(_registry.launched.items())  # another thread may add to them
    }


def forget() -> None:
    """Drop every kernel of this process (for tests). Graphs compiled before keep what they have resolved."""
    _registry.adopted.clear()
    _registry.launched.clear()
    _registry.allocating.clear()
    _registry.problems.clear()


def ready(key: str) -> str:
    """Build, unless this machine has built it before, and load an adopted kernel: why that is impossible, or ""."""
    entry = adopted(key)
    with _registry.lock(key):
        if key not in _registry.launched:
            try:
                _registry.launched[key] = _launcher(entry, entry.load())
            except Exception as failure:  # guards the user's program: whatever is wrong with a kernel, the region can do without
                diagnosis = str(getattr(failure, "diagnosis", "")).strip().partition("\n")[0]
                return f"could not be built or loaded: {type(failure).__name__}: {failure} {diagnosis}".rstrip()
    return ""


def _launched(entry: Adopted) -> native.Launched:
    with _registry.lock(entry.key):
        why = ready(entry.key)
        if why:
            _problem(entry.key, why)
            _registry.launched[entry.key] = _launcher(entry, Loaded())
        return _registry.launched[entry.key]


def _launcher(entry: Adopted, loaded: Loaded) -> native.Launched:
    counts = {
        "inputs": len(entry.workload.inputs),
        "symbols": len(entry.workload.symbols),
        "outputs": len(entry.workload.output_specs),
    }
    fallback = _fallback(entry, known_broken=not (loaded.address or loaded.call))
    if loaded.call is not None and not loaded.address:
        return native.GuardedLauncher(
            loaded.call, **counts, fallback=fallback, in_place=bool(entry.workload.aliases), most=entry.most
        )
    with _registry.lock("the compiled launcher"):
        return native.launcher(
            loaded.address,
            **counts,
            fallback=fallback,
            keep=loaded.keep,
            release_gil=entry.kernel_us >= GIL_RELEASE_US,
            directory=entry.directory,
            most=entry.most,
        )


def _fallback(entry: Adopted, *, known_broken: bool) -> Callable[..., None]:
    """The region's reference with the launcher's calling rule. Empty sizes are expected; anything else is a problem."""
    inputs, symbols = len(entry.workload.inputs), len(entry.workload.symbols)

    def run(*args: Any) -> None:
        import torch

        sizes = args[inputs : inputs + symbols]
        if not known_broken and 0 not in sizes and entry.key not in _registry.problems:
            _problem(entry.key, f"declined a call with sizes {list(sizes)}")
        tensors = [*args[:inputs], *args[inputs + symbols :]]
        with torch.no_grad(), torch._C._DisableAutocast():  # Inductor's code does not look at either
            if entry.workload.aliases:
                tensors = _flat(tensors, entry.workload)
            values = entry.reference(*tensors[:inputs], *sizes)
            for out, value in zip(tensors[inputs:], values, strict=True):
                out.copy_(value)

    return run


def _flat(tensors: Sequence[Any], workload: Workload) -> list[Any]:
    """Dense tensors as an in-place workload sees them: their elements in the order of memory."""
    specs = (*workload.inputs, *workload.output_specs)
    return [t.as_strided((t.numel(),) * len(s.shape), (1,) * len(s.shape)) for t, s in zip(tensors, specs, strict=True)]


def _problem(key: str, reason: str) -> None:
    _registry.problems[key] = reason
    log.warning("kernel %s %s; the region runs in eager", key[:16], reason)
    with contextlib.suppress(KernelFellBack):  # where warnings are errors, the reference runs all the same
        warnings.warn(f"accelopt: kernel {key[:16]} {reason}; the region runs in eager", KernelFellBack, stacklevel=3)


def _allocating(entry: Adopted, launched: native.Launched) -> Callable[..., Any]:
    import torch

    from accelopt_compile.dtypes import DTYPES

    workload = entry.workload
    dtypes = tuple(DTYPES[s.dtype] for s in workload.output_specs)
    on_host = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None) if entry.device == "cpu" else None
    if on_host is not None:
        made: Callable[..., Any] = eval(allocating_text(workload), {"__builtins__": {}})(on_host, launched, *dtypes)
        return made
    shapes = layouts(workload.output_specs, workload.symbols)
    first_size = len(workload.inputs)

    def call(*args: Any) -> Any:
        allocate = functools.partial(_empty_beside, args[0] if first_size else entry.device)
        outs = tuple(
            allocate(shape, strides, dtype) for (shape, strides), dtype in zip(shapes(*args[first_size:]), dtypes, strict=True)
        )
        launched(*args, *outs)
        return outs[0] if len(outs) == 1 else outs

    return call


def _empty_beside(place: Any, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """New memory where a tensor lies, or on the current device of a type."""
    import torch

    device = place.device if isinstance(place, torch.Tensor) else place
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)

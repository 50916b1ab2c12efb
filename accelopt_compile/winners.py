"""From a stored record to a kernel that a graph can call."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accelopt_backends.base import Backend
from accelopt_cache.kernel_store import Store
from accelopt_cache.reuse import PROOF
from accelopt_compile import temporary
from accelopt_compile.errors import AccelOptError
from accelopt_compile.launch import kernels, native
from accelopt_compile.records import (
    Artifact,
    Binding,
    KernelSource,
    Record,
    Workload,
    bucket_distance,
    canonical_json,
    sha256_text,
)
from accelopt_compile.reference import reference

log = logging.getLogger("accelopt_compile.winners")


HIT_DISTANCE = 2.0
"""Powers of two between the sizes that a record was measured at and those that it serves; proofs draw sizes as far
(`evaluate/cases.py`)."""


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A kernel chosen for a workload of this graph. `key` names it in graphs."""

    key: str
    workload: Workload
    record: Record

    def gain_us(self, binding: Binding) -> float:
        """What one call at these sizes saves of the better baseline's time, at least so much of Inductor's: as far as the sizes
        are from those that were timed, so much less."""
        timing = self.record.timing
        gained = 0.0 if timing is None else timing.baseline_us - timing.kernel_us
        return gained * math.exp2(-bucket_distance(self.record.binding, binding))


def winner_of(record: Record, workload: Workload) -> Winner:
    """The winner in a record whose outcome is "winner": nothing else is ever made callable."""
    assert record.source is not None and record.outcome == "winner" and record.rung == "device"
    return Winner(key=_key(record, record.source), workload=workload, record=record)


def _key(record: Record, source: KernelSource) -> str:
    return sha256_text(canonical_json([record.workload, record.target, source.digest, sorted(record.tunables.items())]))


def _build_name(record: Record, source: KernelSource) -> str:
    """What the built file of a record is called: its kernel, and what it was proven with. One that was proven again with another
    compiler, other flags or another judge is built again: what an earlier one had built was never looked at by that proof."""
    proven_with = sorted((name, value) for name, value in record.environment.items() if name in PROOF)
    return sha256_text(canonical_json([_key(record, source), proven_with]))


def admitted(record: Record, source: KernelSource, *, store: Store, backend: Backend) -> bool:
    """Whether the screen has nothing against a record's source. One that this machine has built passed before: nothing is
    built unscreened, and a screen takes a tenth of a second, of each kernel at each start (7 winners: 0.7 s of 5.5)."""
    return store.built(record.target, _build_name(record, source)) is not None or not backend.screen(source)


def adopt(winner: Winner, *, store: Store, backend: Backend) -> None:
    """Make the winner callable in this process. Nothing is built yet; what the store has to give is already in memory."""
    timing = winner.record.timing
    kernels.adopt(
        kernels.Adopted(
            key=winner.key,
            workload=winner.workload,
            load=functools.partial(load, winner, store=store, backend=backend),
            reference=reference_of(winner.workload, backend.device),
            directory=launcher_directory(store),
            kernel_us=0.0 if timing is None else timing.kernel_us,
            device=backend.device,
            most=_most(winner),
        )
    )


def _most(winner: Winner) -> tuple[int, ...]:
    """The largest sizes for a kernel that somebody wrote: nobody has seen what its text does beyond. What the generator wrote
    takes any size."""
    source = winner.record.source
    if source is None or source.rendered:
        return ()
    return tuple(int(2**HIT_DISTANCE) * winner.record.binding[name] for name in winner.workload.symbols)


def load(winner: Winner, *, store: Store, backend: Backend) -> kernels.Loaded:
    """Build the kernel unless this machine has built it for its record before, and load it. Raises AccelOptError or OSError."""
    artifact = built(winner, store=store, backend=backend)
    try:
        return loaded(artifact, backend)
    except OSError as failure:
        log.warning("%s cannot be loaded (%s); building it again", artifact.path, failure)
    return loaded(_build(winner, store=store, backend=backend), backend)


def built(winner: Winner, *, store: Store, backend: Backend) -> Artifact:
    """The kernel's file, built unless this machine has built it for its record before. Raises AccelOptError or OSError."""
    record = winner.record
    assert record.source is not None
    kept = store.built(record.target, _build_name(record, record.source))
    return _build(winner, store=store, backend=backend) if kept is None else _artifact(kept, record.source, record.tunables)


def _build(winner: Winner, *, store: Store, backend: Backend) -> Artifact:
    record = winner.record
    assert record.source is not None
    refusals = backend.screen(record.source)
    if refusals:
        raise AccelOptError(f"its source is refused: line {refusals[0].line}: {refusals[0].reason}")
    with temporary.Folder("build") as workdir:
        made = backend.build(record.source, record.tunables, workdir)
        kept = store.put_built(record.target, _build_name(record, record.source), made.path)
    return _artifact(kept, record.source, record.tunables)


def _artifact(path: Path, source: KernelSource, tunables: Mapping[str, int]) -> Artifact:
    return Artifact(path=str(path), source_digest=source.digest, tunables=tunables)


def loaded(artifact: Artifact, backend: Backend) -> kernels.Loaded:
    """By the C entry point where the file has one, so that no Python stands between the graph and the kernel. Kernels on
    a device have none: launching them is host code of the backend's."""
    if backend.device != "cpu":
        return kernels.Loaded(call=_plain(backend.load(artifact)))
    try:
        address, library = native.c_function(artifact.path)
    except OSError:
        return kernels.Loaded(call=_plain(backend.load(artifact)))
    return kernels.Loaded(address=address, keep=library)


def _plain(kernel: Callable[..., int]) -> native.PlainKernel:
    return lambda pointers, sizes, threads: kernel(pointers, sizes, threads)


def launcher_directory(store: Store) -> Path:
    """Where the compiled launcher lives: beside the builds, or in a temporary place where the store has no directory."""
    return store.build_dir("launcher", "native")


def reference_of(workload: Workload, device: str = "cpu") -> kernels.Reference:
    """`(input..., symbol...) -> outputs`: the region in eager, in its own dtypes; made on the first call."""
    made = functools.cache(functools.partial(reference, workload, device=device))
    return lambda *args: made()(*args)

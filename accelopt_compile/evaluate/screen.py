"""The first gate: what a backend refuses to build, as a verdict."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt_backends.base import Backend
from accelopt_compile.records import KernelSource, Rejected, Stage

SOURCE_BYTES = 256 << 10


def screen(backend: Backend, source: KernelSource, tunables: Mapping[str, int]) -> Rejected | None:
    """None when it may be built."""
    if len(source.text.encode()) > SOURCE_BYTES:
        return Rejected(stage=Stage.SCREEN, reason=f"the source is longer than {SOURCE_BYTES >> 10} KiB")
    for name, value in tunables.items():
        if value not in source.tunables.get(name, ()):
            return Rejected(stage=Stage.SCREEN, reason=f"{name}={value} is not among the declared tunables")
    if not backend.valid(source, tunables):
        return Rejected(stage=Stage.SCREEN, reason="this combination of tunables is excluded by the backend's constraint")
    refusals = backend.screen(source)
    if not refusals:
        return None
    lines = "\n".join(f"line {r.line}: {r.reason}; {r.hint}" for r in refusals[:20])
    return Rejected(stage=Stage.SCREEN, reason=refusals[0].reason, diagnosis=lines)

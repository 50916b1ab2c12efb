"""Verification where kernels run in a simulation of their device: the same trials, at sizes that keep an interpreter quick.

Covered: everything that a result shows: values, shapes, sizes 0 and 1 and odd ones, strides, bounds, alignment, mutation,
poison, memory between calls. Not covered: what only the device does, such as races between its threads, its own rounding, and
sizes beyond these. So a kernel of this rung is a candidate. Pure functions of a workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from accelopt_compile.evaluate.cases import Trial, elements, shrunk, trials
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.records import Workload

ELEMENTS = 1 << 14
"""Elements of all tensors of a case at most, as far as free sizes can be cut; fixed sizes are what they are."""

WORK = {"quick": 1 << 18, "full": 1 << 21}
"""Elements times calls after which a trial is left out that repeats a size already met."""

CALLS = 2
"""Calls of a case: one that shows the result, one that shows whether it holds. More would look for races, of which a simulation
that runs one thread after another has none."""

LIMITS = Limits(call_s=120.0, build_s=120.0, start_s=120.0, verify_s=300.0)
"""An interpreter takes milliseconds for what a device does in one."""


def reduced(workload: Workload, binding: Mapping[str, int]) -> dict[str, int]:
    """`binding` with its largest sizes halved until a simulation is quick there."""
    return dict(shrunk(workload, binding, ELEMENTS))


def simulated_trials(workload: Workload, binding: Mapping[str, int], effort: str, seeds: Sequence[int]) -> list[Trial]:
    """The trials of a device at the reduced binding, each cut to `ELEMENTS`, within `WORK`. Each size once, each misalignment,
    fence and index outside, and the first case once more at the end stay in any case; other thread counts, which a simulation
    does not have, go."""
    asked = trials(workload, reduced(workload, binding), effort, seeds, threads=1)
    cut = [
        replace(trial, case=replace(trial.case, binding=shrunk(workload, dict(trial.case.binding), ELEMENTS)), calls=CALLS)
        for trial in asked
        if trial.threads == 1
    ]
    kept: list[Trial] = []
    met: set[tuple[tuple[str, int], ...]] = set()
    work = 0
    for number, trial in enumerate(cut):
        mine = CALLS * max(1, elements(workload, dict(trial.case.binding)))
        needed = trial.case.binding not in met or bool(trial.circumstances) or number == len(cut) - 1
        if (needed or work + mine <= WORK[effort]) and (trial not in kept or number == len(cut) - 1):
            kept.append(trial)
            met.add(trial.case.binding)
            work += mine
    return kept

"""What an author reads: the workload, a kernel's profile, what was tried. Text only; nothing is decided here."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from accelopt_compile.llm.prompts import front_matter
from accelopt_compile.records import Candidate, TensorSpec, Timing, Workload, bytes_of
from accelopt_compile.reference import reference_source
from accelopt_compile.search.task import SearchTask
from accelopt_compile.wording import plural, shortened

_TRIED_SHOWN = 10
_PLAN_SHOWN = 700


def common(task: SearchTask) -> dict[str, Any]:
    """What every author of kernels reads: the language, its facts and rules, the machine, the workload, how code is fenced."""
    guide = task.backend.guide()
    return {
        "language": guide.language,
        "facts": front_matter("facts", guide.facts)[1].strip(),
        "writing": front_matter("writing", guide.writing)[1].strip(),
        "machine": task.told_machine(),
        "workload": workload_text(task),
        "fence": guide.fences[0],
    }


def workload_text(task: SearchTask) -> str:
    """The workload as PyTorch code that anyone can run, its tensors in the order the kernel gets them, and the sizes it is
    timed at."""
    w = task.workload
    tensors = [_tensor(f"tensors[{n}] = i{n}", spec) for n, spec in enumerate(w.inputs)]
    tensors += [_tensor(f"tensors[{len(w.inputs) + n}] = output {n}", spec) for n, spec in enumerate(w.output_specs)]
    rule = "an element may be written once all that needs it was read"
    over = [f"output {out} lies over input {given}: {rule}" for out, given in w.aliases]
    timed = "its time is estimated" if task.settings.estimated else "it is timed"
    sizes = ", ".join(f"sizes[{n}] = {name} = {task.binding[name]}" for n, name in enumerate(w.symbols)) or "no symbols"
    return "\n".join(
        [
            "```python",
            reference_source(w).strip(),
            "```",
            "",
            *(f"- {line}" for line in (*tensors, *over)),
            f"- {timed} at {sizes}, with {plural(task.threads, 'thread')}",
        ]
    )


def profile_lines(task: SearchTask, candidate: Candidate, rng: random.Random | None) -> list[str]:
    """What was measured of a kernel, or estimated, a line a number, in a random order where `rng` is given (the paper shuffles
    them, so that no line is always first)."""
    timing, roof = candidate.verdict.timing, task.least()
    roof_us, moved = roof.seconds * 1e6, bytes_once(task.workload, task.binding)
    how, features = "" if timing.basis == "measured" else "estimated_", candidate.verdict.features
    lines = [
        *_times(timing),
        f"roofline_us: {roof_us:.1f}, bound: {roof.bound}",
        f"{how}share_of_roofline: {roof_us / timing.kernel_us:.2f}",
        f"bytes_once: {moved}, {how}achieved_gb_s: {moved / timing.kernel_us / 1e3:.2f}",
        *(f"{name}: {features[name]}" for name in task.backend.guide().counts if name in features),
    ]
    if candidate.tunables:
        lines.append("tunables: " + ", ".join(f"{name}={value}" for name, value in sorted(candidate.tunables.items())))
    if rng is not None:
        rng.shuffle(lines)
    return lines


def tried_lines(task: SearchTask, parent: Candidate) -> list[str]:
    """The latest plans of this search and what each came to, oldest first; those on other kernels are marked."""
    shown = []
    for tried in task.tried[-_TRIED_SHOWN:]:
        where = "" if tried.parent == parent.id else f"(on kernel {tried.parent}) "
        shown.append(f"{where}{shortened(tried.plan.text, _PLAN_SHOWN)}\n  Came of it: {tried.outcome}")
    return shown


def with_lines(told: str, text: str) -> str:
    """A diagnosis with the lines of the source that it names by number, each below the one that names it: an author reads the
    source without the library, so its own line numbers are others."""
    lines = text.splitlines()
    found = []
    for line in told.splitlines():
        found.append(line)
        named = re.search(r"(?:\bline |\.\w{1,4}:)(\d{1,6})\b", line)
        if named and 0 < int(named[1]) <= len(lines):
            found.append(f"    there: {lines[int(named[1]) - 1].strip()[:200]}")
    return "\n".join(found)


def bytes_once(workload: Workload, binding: Mapping[str, int]) -> int:
    """Bytes of all inputs and outputs, each counted once."""
    return sum(bytes_of(spec, binding) for spec in (*workload.inputs, *workload.output_specs))


def _tensor(name: str, spec: TensorSpec) -> str:
    shape, strides = (", ".join(map(str, dims)) for dims in (spec.shape, spec.strides))
    return f"{name}: {spec.dtype}, shape ({shape}), strides ({strides}) in elements"


def _times(timing: Timing) -> list[str]:
    """A kernel's time against the baseline's."""
    if timing.basis == "estimated":
        return [
            f"estimated_kernel_us: {timing.kernel_us:.1f} (the device is not here: a model of it, nothing was timed)",
            f"estimated_baseline_us: {_baseline(timing)}",
            f"estimated_speedup: {timing.speedup:.3f}",
        ]
    return [
        f"kernel_us: {timing.kernel_us:.1f}",
        f"baseline_us: {_baseline(timing)}",
        f"speedup: {timing.speedup:.3f} (95 % interval {timing.low:.3f} to {timing.high:.3f})",
    ]


def _baseline(timing: Timing) -> str:
    best = min(timing.baselines_us, key=lambda name: timing.baselines_us[name])
    return f"{timing.baselines_us[best]:.1f} ({best})"

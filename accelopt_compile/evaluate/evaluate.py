"""The evaluator: a kernel source in, a verdict out. A bad kernel is a `Rejected`, whatever it does to its process.

Each stage costs a candidate its verdict and nothing else: screen (here), build (a builder process), verify and time (a
fresh runner process each; a referee that never meets the kernel prepares and judges). Where the backend says that its device is
not here (rung "simulated"), nothing is timed: the backend estimates instead, and the verdict's timing says so.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from accelopt_backends.base import Backend, Ready, Roofline
from accelopt_backends.registry import address_of
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.builds import Builds
from accelopt_compile.evaluate.cases import little, on_device, trials
from accelopt_compile.evaluate.clocking import Clocking, Stopped
from accelopt_compile.evaluate.crew import Crew
from accelopt_compile.evaluate.estimating import estimated, unfused_us
from accelopt_compile.evaluate.limits import Limits, attached_limits
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.host import Child
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.evaluate.sandbox.walls import described
from accelopt_compile.evaluate.simulation import LIMITS, reduced, simulated_trials
from accelopt_compile.evaluate.verifying import Verified, called, verify
from accelopt_compile.records import (
    Accepted,
    Artifact,
    KernelSource,
    Rejected,
    Stage,
    Timing,
    Verdict,
    Workload,
    bytes_of,
)

Effort = Literal["quick", "full"]


class Evaluator:
    """Judges kernels for one workload at one binding. Made by `open_evaluator`; not thread-safe."""

    def __init__(
        self,
        workload: Workload,
        binding: Mapping[str, int],
        *,
        backend: Backend,
        threads: int,
        seed: int,
        workdir: str,
        limits: Limits | None,
        cache_dir: str | None,
    ) -> None:
        self.workload, self.binding, self.threads = workload, dict(binding), threads
        self._backend, self._seed = backend, seed
        ready = backend.probe()
        self.simulated = isinstance(ready, Ready) and ready.rung == "simulated"
        self.checked_at = reduced(workload, binding) if self.simulated else dict(binding)
        attached = isinstance(ready, Ready) and ready.attached is not None
        limits = limits or (LIMITS if self.simulated else attached_limits() if attached else Limits())
        self._crew = Crew(workload, self.checked_at, backend, workdir, limits, threads, cache_dir)
        self._builds = Builds(self._crew, backend)
        self._clocking = Clocking(self._crew, threads=threads, seed=seed + 7919)
        self._blind: str | None = None

    def start(self) -> None:
        """Have the workload taken. Raises EvaluatorDied where it is not."""
        self._crew.start()

    @property
    def inductor_failure(self) -> str:
        """Why Inductor could not compile the region; "" where it could, or is still at it."""
        return self._crew.inductor_failure

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        """Screen, build, verify and time one candidate. Raises only for our own failures (EvaluatorDied, ToolchainMissing)."""
        return self.evaluate_many([(source, tunables)], effort=effort)[0]

    def evaluate_many(
        self, candidates: Sequence[tuple[KernelSource, Mapping[str, int]]], *, effort: Effort = "quick"
    ) -> list[Verdict]:
        """Verdicts in the order given: builds run in parallel, verification and timing one after another."""
        return list(self.evaluate_each(candidates, effort=effort))

    def evaluate_each(
        self, candidates: Sequence[tuple[KernelSource, Mapping[str, int]]], *, effort: Effort = "quick"
    ) -> Iterator[Verdict]:
        """`evaluate_many`, one verdict at a time, so that a caller may stop early."""
        if not self.simulated:
            self._crew.start_baseline()
        for artifact in self._builds.make(candidates):
            yield artifact if isinstance(artifact, Rejected) else self._judge(artifact, effort)

    def verify(
        self, source: KernelSource, tunables: Mapping[str, int], *, seeds: Sequence[int], effort: Effort = "full"
    ) -> Verified | Rejected:
        """Screen, build and verify, without timing, on inputs of these seeds."""
        (artifact,) = self._builds.make([(source, tunables)])
        return artifact if isinstance(artifact, Rejected) else self._verify(artifact, effort, seeds)

    def baselines(self) -> Mapping[str, float]:
        """Median microseconds of "eager" and, where it can compile the region, "inductor". Waits for the compilation. Where
        nothing can be timed: the estimate of "unfused". Raises EvaluatorDied."""
        if self.simulated:
            return {"unfused": unfused_us(self._backend, self.workload, self.binding, self.threads)}
        try:
            return self._clocking.medians()
        except Stopped as stopped:
            raise EvaluatorDied(f"the baselines cannot be measured: {stopped}") from stopped

    def pids(self) -> list[int]:
        """The processes that live now: referee, nursery, builders."""
        return self._crew.pids()

    def close(self) -> None:
        """End every process and remove the scratch folder. Safe to call twice."""
        self._crew.close()

    # ------------------------------------------------------------ verify and time

    def _judge(self, artifact: Artifact, effort: Effort) -> Verdict:
        seeds = [self._seed + 1, self._seed + 2] if effort == "quick" else [secrets.randbits(62) for _ in range(3)]
        verified = self._verify(artifact, effort, seeds)
        if isinstance(verified, Rejected):
            return verified
        features = dict(artifact.features) | {
            "build_s": artifact.build_s,
            "cases_skipped": verified.skipped,
            "walls": described(verified.walls),
        }
        if self.simulated:
            timing = estimated(self._backend, artifact, self.workload, self.binding, self.threads)
            features["checked_at"] = self.checked_at
            return Accepted(errors=verified.errors, timing=timing, features=features)
        measured = self._time(artifact, effort)
        if isinstance(measured, Rejected):
            return measured
        return self._implausible(measured) or Accepted(errors=verified.errors, timing=measured, features=features)

    def _verify(self, artifact: Artifact, effort: Effort, seeds: Sequence[int]) -> Verified | Rejected:
        if effort == "full" and self._blind is None:
            message = {"op": "informative", "binding": dict(little(self.workload, self.checked_at)), "seed": seeds[0]}
            self._blind = "; ".join(self._crew.ask(message)["reasons"])
        if effort == "full" and self._blind:
            return Rejected(stage=Stage.NUMERICS, reason=f"no test could tell a wrong kernel: {self._blind}")
        runner = self._crew.runner()
        try:
            loaded = self._load(runner, artifact)
            if isinstance(loaded, Rejected):
                return loaded
            if self.simulated:
                wanted = simulated_trials(self.workload, self.binding, effort, seeds)
            else:
                wanted = trials(self.workload, self.binding, effort, seeds, self.threads)
            if self._crew.attached is not None:
                wanted = on_device(wanted)
            verified = verify(self._crew, runner, wanted)
            return verified if isinstance(verified, Rejected) else replace(verified, walls=loaded["walls"])
        finally:
            runner.close()

    def _time(self, artifact: Artifact, effort: Effort) -> Timing | Rejected:
        """In another fresh runner: nothing that the kernel left where it was verified is there."""
        seed = self._seed + 7919 if effort == "quick" else secrets.randbits(62)
        try:
            self._clocking.medians()
        except Stopped as stopped:
            return stopped.verdict
        runner = self._crew.runner(timing=True)
        try:
            loaded = self._load(runner, artifact)
            return loaded if isinstance(loaded, Rejected) else self._clocking.time(runner, effort, seed)
        finally:
            runner.close()

    def _load(self, runner: Child, artifact: Artifact) -> dict[str, Any] | Rejected:
        message = {"op": "load", "backend": address_of(self._backend), "artifact": asdict(artifact)}
        loaded = called(runner, message, self._crew.limits.call_s, "loading the kernel")
        if isinstance(loaded, Rejected) or isinstance(loaded.get("walls"), dict):
            return loaded
        return Rejected(stage=Stage.CHEAT, reason="the runner said nothing of its walls")

    def _implausible(self, timing: Timing) -> Rejected | None:
        """A kernel faster than the device allows did not do the work. Only for data that no cache can hold."""
        touched = sum(bytes_of(s, self.binding) for s in (*self.workload.inputs, *self.workload.output_specs))
        if touched < 4 * _last_level_cache_bytes():
            return None
        measured = (self._backend.roofline(self.workload, self.binding, self.threads, fresh=fresh) for fresh in (False, True))
        return too_fast(timing, measured)


def too_fast(timing: Timing, rooflines: Iterable[Roofline]) -> Rejected | None:
    """A kernel that is faster than every roofline. The next one is asked for only where the one before is broken."""
    for least in rooflines:
        if timing.kernel_us >= 0.9e6 * least.seconds:
            return None
    device = f"{1e6 * least.seconds:.0f} us, {least.bound} bound"
    return Rejected(stage=Stage.CHEAT, reason=f"{timing.kernel_us:.0f} us is less than the device needs ({device})")


@contextlib.contextmanager
def open_evaluator(
    workload: Workload,
    binding: Mapping[str, int],
    *,
    backend: Backend,
    threads: int,
    seed: int,
    workdir: str,
    limits: Limits | None = None,
    cache_dir: str | None = None,
) -> Iterator[Evaluator]:
    """An evaluator for as long as the context lasts; its children end with it. `seed` fixes the inputs of quick
    evaluations; full ones draw fresh seeds. Built kernels go to `workdir`, compiled baselines to the store in `cache_dir` (None:
    the default one). Raises EvaluatorDied."""
    evaluator = Evaluator(
        workload, binding, backend=backend, threads=threads, seed=seed, workdir=workdir, limits=limits, cache_dir=cache_dir
    )
    try:
        evaluator.start()
        yield evaluator
    finally:
        evaluator.close()


def warm(cache_dir: str | None = None) -> None:
    """Start the fork server in the background (2 to 5 s of imports), before the first evaluator is needed. Where that cannot be
    done, whoever needs it is told why."""
    with contextlib.suppress(EvaluatorDied, OSError):
        forkserver.start(baselines_folder(cache_dir))


def wait_until_warm(seconds: float = Limits.start_s, cache_dir: str | None = None) -> None:
    """Wait for the fork server, at most so long, so that no search pays for it. Raises EvaluatorDied where it does not come."""
    forkserver.shared(seconds, baselines_folder(cache_dir))


def _last_level_cache_bytes() -> int:
    """Size of the largest cache of CPU 0; 64 MiB where the system does not say."""
    sizes = [64 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << (10 if text.endswith("K") else 20))
    return max(sizes)

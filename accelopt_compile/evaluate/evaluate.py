"""The evaluator: a kernel source in, a verdict out. A bad kernel is a `Rejected`, whatever it does to its process.

Each stage costs a candidate its verdict and nothing else: screen (here), build (a builder child), verify and time (the
session child, which keeps golden answers and baselines across candidates and is restarted when a candidate kills it).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from accelopt_backends.base import Backend
from accelopt_compile.errors import EvaluatorDied, ToolchainMissing
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox import forkserver
from accelopt_compile.evaluate.sandbox.confine import baselines_folder
from accelopt_compile.evaluate.sandbox.host import Child, ChildFailed
from accelopt_compile.evaluate.screen import screen
from accelopt_compile.records import (
    Accepted,
    Artifact,
    ErrorReport,
    KernelSource,
    Rejected,
    Stage,
    Timing,
    Verdict,
    Workload,
    evaluate_dim,
    sha256_text,
)

log = logging.getLogger(__name__)

Effort = Literal["quick", "full"]
ITEM_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1}
BUILDERS = 2


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
        limits: Limits,
    ) -> None:
        self.workload, self.binding, self.threads = workload, dict(binding), threads
        self._backend, self._seed, self._workdir, self._limits = backend, seed, workdir, limits
        self._backend_name = f"{type(backend).__module__}:{type(backend).__qualname__}"
        self._scratch = tempfile.TemporaryDirectory(prefix="accelopt-scratch-")
        self._inductor_cache = baselines_folder()
        self._session: Child | None = None
        self._builders: list[Child] = []
        self._built: dict[tuple[str, tuple[tuple[str, int], ...]], Artifact | Rejected] = {}
        self._warmer: tuple[Child, int] | None = None
        self._inductor: bool | None = None
        self.inductor_failure = ""
        self._warm_baseline()

    # ------------------------------------------------------------ what callers use

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
        built = self._build_all(candidates)
        for (source, tunables), artifact in zip(candidates, built, strict=True):
            del source, tunables
            yield artifact if isinstance(artifact, Rejected) else self._judge(artifact, effort)

    def baselines(self) -> Mapping[str, float]:
        """Median microseconds of "eager" and, where it can compile the region, "inductor". Waits for the compilation."""
        inductor = self._baseline_ready()
        answer = self._opened().request({"op": "baselines", "inductor": inductor}, self._limits.baseline_s)
        if "error" in answer:
            raise EvaluatorDied(f"the baselines cannot be measured: {answer['error']}")
        return dict(answer["baselines_us"])

    def close(self) -> None:
        """End every child and remove the scratch folder. Safe to call twice."""
        children = [*self._builders, *([self._session] if self._session else []), *([self._warmer[0]] if self._warmer else [])]
        for child in children:
            child.close()
        self._builders, self._session, self._warmer = [], None, None
        with contextlib.suppress(OSError):
            self._scratch.cleanup()

    # ------------------------------------------------------------ children

    def _child(self) -> Child:
        return Child(self._scratch.name, self._inductor_cache, self._limits)

    def _opened(self) -> Child:
        """The session child, started and opened if it is not there."""
        if self._session is None or not self._session.alive:
            child = self._child()
            self._open(child)
            self._session = child
        return self._session

    def _open(self, child: Child) -> None:
        message = {
            "op": "open",
            "workload": self.workload.to_json(),
            "binding": self.binding,
            "threads": self.threads,
            "seed": self._seed,
        }
        try:
            answer = child.request(message, self._limits.start_s)
        except ChildFailed as failure:
            raise EvaluatorDied(f"the evaluation process did not start: {failure.what}\n{failure.output}") from failure
        if "error" in answer:
            child.close()
            raise EvaluatorDied(f"the evaluation process refused the workload: {answer['error']}")

    def _warm_baseline(self) -> None:
        """Start compiling the baseline in a child of its own; its result reaches the session through Inductor's cache."""
        child = self._child()
        try:
            self._open(child)
            self._warmer = (child, child.send({"op": "baseline"}))
        except BaseException:
            child.close()
            raise

    def _baseline_ready(self) -> bool:
        """Wait until Inductor's code is compiled; whether there is any."""
        if self._inductor is None and self._warmer is not None:
            child, number = self._warmer
            try:
                answer = child.wait(number, self._limits.baseline_s)
                self._inductor = bool(answer.get("inductor"))
                self.inductor_failure = str(answer.get("why") or answer.get("error") or "")
            except ChildFailed as failure:
                self._inductor, self.inductor_failure = False, failure.what
            child.close()
            self._warmer = None
            if not self._inductor:
                log.warning("no Inductor baseline, eager only: %s", self.inductor_failure)
        return bool(self._inductor)

    # ------------------------------------------------------------ build

    def _build_all(self, candidates: Sequence[tuple[KernelSource, Mapping[str, int]]]) -> list[Artifact | Rejected]:
        """Screen and build; the same source with the same tunables is built once."""
        keys = [(source.digest, tuple(sorted(tunables.items()))) for source, tunables in candidates]
        todo: list[int] = []
        for k, (key, (source, tunables)) in enumerate(zip(keys, candidates, strict=True)):
            if key in self._built or any(keys[j] == key for j in todo):
                continue
            refused = screen(self._backend, source, tunables)
            if refused is not None:
                self._built[key] = refused
            else:
                todo.append(k)
        for start in range(0, len(todo), BUILDERS):
            batch = todo[start : start + BUILDERS]
            sent = [(k, *self._send_build(slot, *candidates[k])) for slot, k in enumerate(batch)]
            for k, child, number in sent:
                self._built[keys[k]] = self._receive_build(child, number)
        return [self._built[key] for key in keys]

    def _send_build(self, slot: int, source: KernelSource, tunables: Mapping[str, int]) -> tuple[Child, int]:
        if slot >= len(self._builders):
            self._builders.append(self._child())
        elif not self._builders[slot].alive:
            self._builders[slot] = self._child()
        folder = Path(self._workdir) / sha256_text(source.digest + repr(sorted(tunables.items())))[:16]
        folder.mkdir(parents=True, exist_ok=True)
        message = {
            "op": "build",
            "backend": self._backend_name,
            "source": {
                "language": source.language,
                "text": source.text,
                "tunables": {name: list(values) for name, values in source.tunables.items()},
                "structure": dict(source.structure),
                "origin": source.origin,
            },
            "tunables": dict(tunables),
            "workdir": str(folder),
        }
        child = self._builders[slot]
        return child, child.send(message)

    def _receive_build(self, child: Child, number: int) -> Artifact | Rejected:
        try:
            answer = child.wait(number, self._limits.build_s)
        except ChildFailed as failure:
            stage = Stage.TIMEOUT if failure.timed_out else Stage.BUILD
            return Rejected(stage=stage, reason=f"build: {failure.what}", diagnosis=failure.output)
        if "missing" in answer:
            raise ToolchainMissing(answer["missing"])
        if "artifact" in answer:
            return Artifact(**answer["artifact"])
        reason = str(answer.get("refused") or answer.get("failed") or answer.get("error"))
        stage = Stage.SCREEN if "refused" in answer else Stage.BUILD
        return Rejected(stage=stage, reason=reason, diagnosis=str(answer.get("diagnosis", "")))

    # ------------------------------------------------------------ verify and time

    def _judge(self, artifact: Artifact, effort: Effort) -> Verdict:
        seeds = [self._seed + 1, self._seed + 2] if effort == "quick" else [secrets.randbits(62) for _ in range(3)]
        common = {
            "backend": self._backend_name,
            "artifact": {
                "path": artifact.path,
                "source_digest": artifact.source_digest,
                "tunables": dict(artifact.tunables),
                "features": {},
                "build_s": artifact.build_s,
            },
            "effort": effort,
        }
        verified = self._ask(common | {"op": "verify", "seeds": seeds}, self._limits.verify_s)
        if isinstance(verified, Rejected):
            return verified
        timed = self._ask(common | {"op": "time", "inductor": self._baseline_ready()}, self._limits.timing_s)
        if isinstance(timed, Rejected):
            return timed
        errors = ErrorReport(worst_share=verified["worst_share"], cases=verified["cases"], worst_case=verified["worst_case"])
        timing = Timing(**timed["timing"])
        features = dict(artifact.features) | {"build_s": artifact.build_s, "cases_skipped": verified["skipped"]}
        return self._implausible(timing) or Accepted(errors=errors, timing=timing, features=features)

    def _ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any] | Rejected:
        """A request on which the candidate runs. Its misdeeds come back as a verdict."""
        try:
            answer = self._opened().request(message, timeout_s)
        except ChildFailed as failure:
            during = f" ({failure.note})" if failure.note else ""
            stage = Stage.TIMEOUT if failure.timed_out else Stage.RUN
            return Rejected(stage=stage, reason=failure.what + during, diagnosis=failure.output)
        if "error" in answer:
            self._restart()
            return Rejected(stage=Stage.RUN, reason=f"{message['op']}: {answer['error']}")
        if "rejected" in answer:
            stage, reason, diagnosis = answer["rejected"]
            if stage in (Stage.MUTATION.value, Stage.CHEAT.value, Stage.NONDETERMINISM.value):
                self._restart()  # it may have written where it should not: no other candidate meets what it left behind
            return Rejected(stage=Stage(stage), reason=reason, diagnosis=diagnosis)
        return answer

    def _restart(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _implausible(self, timing: Timing) -> Rejected | None:
        """A kernel faster than the device allows did not do the work. Only for data that no cache can hold."""
        touched = sum(self._bytes(s) for s in (*self.workload.inputs, *self.workload.output_specs))
        if touched < 4 * _last_level_cache_bytes():
            return None
        roofline = self._backend.roofline(self.workload, self.binding, self.threads)
        if timing.kernel_us >= 0.9e6 * roofline.seconds:
            return None
        reason = (
            f"{timing.kernel_us:.0f} us is less than the device needs ({1e6 * roofline.seconds:.0f} us, {roofline.bound} bound)"
        )
        return Rejected(stage=Stage.CHEAT, reason=reason)

    def _bytes(self, spec: Any) -> int:
        span = 1
        for dim, stride in zip(spec.shape, spec.strides, strict=True):
            if stride != 0:
                span *= evaluate_dim(dim, self.binding)
        return span * ITEM_BYTES[spec.dtype]


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
) -> Iterator[Evaluator]:
    """An evaluator for as long as the context lasts; its children end with it. `seed` fixes the inputs of quick
    evaluations; full ones draw fresh seeds. Built kernels go to `workdir`. Raises EvaluatorDied."""
    evaluator = Evaluator(
        workload, binding, backend=backend, threads=threads, seed=seed, workdir=workdir, limits=limits or Limits()
    )
    try:
        yield evaluator
    finally:
        evaluator.close()


def prepare_baselines(tasks: Sequence[tuple[Workload, Mapping[str, int]]], *, threads: int, seconds: float) -> int:
    """Compile the Inductor baselines of several workloads, two at a time, into the cache that evaluators read, so that
    later searches do not wait for a compiler each. Stops starting new ones after `seconds`; how many were compiled.
    A workload that fails here fails again, and says so, in its own evaluator."""
    deadline = time.monotonic() + seconds
    queue = iter(tasks)
    lock = threading.Lock()

    def work(_: int) -> int:
        done, child = 0, None
        with tempfile.TemporaryDirectory(prefix="accelopt-scratch-") as scratch:
            while time.monotonic() < deadline:
                with lock:
                    task = next(queue, None)
                if task is None:
                    break
                # One child for many: it preprocesses Inductor's header once, a second each otherwise.
                child = child if child is not None and child.alive else Child(scratch, baselines_folder(), Limits())
                done += _compile_baseline(child, *task, threads=threads, seconds=deadline - time.monotonic())
            if child is not None:
                child.close()
        return done

    with ThreadPoolExecutor(max_workers=BUILDERS) as pool:
        return sum(pool.map(work, range(BUILDERS)))


def _compile_baseline(child: Child, workload: Workload, binding: Mapping[str, int], *, threads: int, seconds: float) -> int:
    opening = {"op": "open", "workload": workload.to_json(), "binding": dict(binding), "threads": threads, "seed": 0}
    try:
        if "error" in child.request(opening, Limits().start_s):
            return 0
        return int(bool(child.request({"op": "baseline"}, max(5.0, seconds)).get("inductor")))
    except ChildFailed as failure:
        log.info("a baseline was not compiled in advance: %s", failure.what)
        child.close()
        return 0


def warm() -> None:
    """Start the fork server in the background (2 to 5 s of imports), before the first evaluator is needed."""
    forkserver.start()


def _last_level_cache_bytes() -> int:
    """Size of the largest cache of CPU 0; 64 MiB where the system does not say."""
    sizes = [64 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << (10 if text.endswith("K") else 20))
    return max(sizes)

"""`accelopt cache verify --rerun`: every stored kernel built and proven again, on fresh inputs, several side by side. Winners on
their device alone, candidates on it or in its simulation."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from accelopt_cache.quarantine import NEXT_STEP
from accelopt_compile import temporary
from accelopt_compile.cli.output import Output
from accelopt_compile.errors import AccelOptError
from accelopt_compile.records import Record, Rejected, Workload
from accelopt_compile.wording import visible

if TYPE_CHECKING:
    from accelopt_backends.base import Backend
    from accelopt_cache.kernel_store import Store
    from accelopt_compile.evaluate.evaluate import Evaluator

State = Literal["proven", "intact", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What became of one record: proven anew; intact (a baseline has no kernel to run); failed, and at which stage; or
    skipped because this machine cannot tell."""

    record_id: str
    state: State
    stage: str = ""
    reason: str = ""
    diagnosis: str = ""

    def line(self) -> str:
        """For people: state, id, why."""
        why = ": ".join(filter(None, [self.stage, self.reason]))
        return f"{self.state:8} {self.record_id[:12]}" + (f"  {why}" if why else "")


@dataclass
class Rerun:
    """Proves records again. `interrupted` says that Ctrl-C ended it; `findings` then hold what was done. `stuck` counts those
    that should have gone out of service and could not."""

    store: Store
    jobs: int
    seed: int = 0
    findings: list[Finding] = field(default_factory=list)
    interrupted: bool = False
    stuck: int = 0
    _open: set[Any] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, ids: Sequence[str], found: Callable[[Finding], None]) -> None:
        """Each record once; `found` is called in this thread as the answers come."""
        pool = ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix="rerun")
        try:
            places = {record_id: (w, t, outcome) for w, t, record_id, outcome in self.store.walk()}
            usable = targets()
            futures = [pool.submit(self._prove, record_id, places.get(record_id), usable) for record_id in ids]
            for future in as_completed(futures):
                self.findings.append(future.result())
                found(self.findings[-1])
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            with self._lock:
                for evaluator in list(self._open):
                    evaluator.close()

    def _prove(self, record_id: str, place: tuple[str, str, str] | None, usable: Mapping[str, Backend]) -> Finding:
        damage = self.store.verify_entry(record_id)
        record = None if place is None else self.store.peek(place[0], place[1], record_id, place[2])
        if damage is not None or record is None:
            reason = (damage or "not readable").removeprefix(f"{record_id}: ")
            return Finding(record_id=record_id, state="failed", stage="contents", reason=reason, diagnosis=NEXT_STEP)
        if record.outcome == "baseline":
            return Finding(record_id=record_id, state="intact", reason="a baseline: no kernel to run")
        backend = usable.get(record.target) or (simulating(record) if record.outcome == "candidate" else None)
        if backend is None:
            here = ", ".join(sorted(usable)) or "no target"
            return Finding(record_id=record_id, state="skipped", reason=f"it is for {record.target}, here is {here}")
        workload = self.store.workload(record.workload)
        if workload is None:
            return Finding(record_id=record_id, state="skipped", reason="its workload is not in the store")
        try:
            rejected = self._verdict(record, workload, backend)
        except AccelOptError as failure:
            return Finding(record_id=record_id, state="skipped", reason=f"the evaluator failed: {failure}")
        except Exception as failure:
            if not self.interrupted:  # its children were taken away under it
                raise
            return Finding(record_id=record_id, state="skipped", reason=f"interrupted: {failure}")
        if rejected is None:
            return Finding(record_id=record_id, state="proven", reason="in simulation" if record.outcome == "candidate" else "")
        return Finding(
            record_id=record_id,
            state="failed",
            stage=rejected.stage.value,
            reason=rejected.reason,
            diagnosis=rejected.diagnosis or NEXT_STEP,
        )

    def _verdict(self, record: Record, workload: Workload, backend: Backend) -> Rejected | None:
        from accelopt_compile.evaluate.evaluate import open_evaluator

        assert record.source is not None
        threads = min(record.timing.threads if record.timing else 1, os.cpu_count() or 1)
        with (
            temporary.Folder("rerun") as workdir,
            open_evaluator(
                workload, record.binding, backend=backend, threads=max(1, threads), seed=self.seed, workdir=workdir
            ) as evaluator,
            self._known(evaluator),
        ):
            seeds = [secrets.randbits(62) for _ in range(3)]
            found = evaluator.verify(record.source, record.tunables, seeds=seeds)
            return found if isinstance(found, Rejected) else None

    @contextmanager
    def _known(self, evaluator: Evaluator) -> Iterator[None]:
        """Whose children end with an interrupt."""
        with self._lock:
            self._open.add(evaluator)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(evaluator)


def targets() -> Mapping[str, Backend]:
    """The backend of each target whose device this machine has."""
    from accelopt_backends.base import Ready
    from accelopt_compile.cli.backends import backends

    answers = {backend: backend.probe() for backend in backends().values()}
    return {
        answer.target: backend for backend, answer in answers.items() if isinstance(answer, Ready) and answer.rung == "device"
    }


def simulating(record: Record) -> Backend | None:
    """A backend that can prove a candidate again in a simulation of its device; None where there is none."""
    from accelopt_backends.base import Ready
    from accelopt_backends.registry import backend_named, classes

    if record.source is None or record.source.language not in classes():
        return None
    backend = backend_named(record.source.language, record.target)
    ready = backend.probe()
    return backend if isinstance(ready, Ready) and ready.target == record.target else None


def default_jobs() -> int:
    """Half of the processors this process may use, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // 2 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) // 2)


def rerun(store: Store, ids: Sequence[str], *, jobs: int, quarantine: bool, out: Output) -> Rerun:
    """Prove the records again and take out of service what fails, if asked to."""
    work = Rerun(store=store, jobs=jobs)

    with _progress(out, len(ids)) as tell:

        def found(finding: Finding) -> None:
            if finding.state == "failed" and quarantine:
                word = "damaged" if finding.stage == "contents" else finding.stage
                reason = f"it failed at {finding.stage} when it was proven again: {finding.reason}"
                work.stuck += not store.quarantine(finding.record_id, reason, word=word, diagnosis=finding.diagnosis)
            tell(finding)

        work.run(ids, found)
    return work


@contextmanager
def _progress(out: Output, total: int) -> Iterator[Callable[[Finding], None]]:
    """A bar on a terminal; elsewhere, and for what fails, one line a record."""
    if out.level < 0 or not sys.stderr.isatty():
        count = 0

        def tell(finding: Finding) -> None:
            nonlocal count
            count += 1
            out.note(f"[{count}/{total}] {finding.line()}")

        yield tell
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("proving again", total=total)

        def advance(finding: Finding) -> None:
            if finding.state in ("failed", "skipped"):
                bar.console.print(escape(visible(finding.line())))
            bar.advance(task)

        yield advance

"""From sources to built kernels: screened here, built in builder processes, the same source with the same numbers once."""

from __future__ import annotations

import contextlib
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt_backends.base import Backend
from accelopt_backends.registry import address_of
from accelopt_compile.errors import EvaluatorDied, ToolchainMissing
from accelopt_compile.evaluate.crew import Crew
from accelopt_compile.evaluate.sandbox.host import Child, ChildFailed
from accelopt_compile.evaluate.screen import screen
from accelopt_compile.records import Artifact, KernelSource, Rejected, Stage, sha256_text

BUILDERS = 2
KEPT = 256
"""Builds that stay on disk, and verdicts of the screen and the compiler that stay in memory: the last used."""

Candidate = tuple[KernelSource, Mapping[str, int]]
Key = tuple[str, tuple[tuple[str, int], ...]]


class Builds:
    """What was built for one evaluator, below its `workdir`."""

    def __init__(self, crew: Crew, backend: Backend) -> None:
        self._crew, self._backend = crew, backend
        self._built: OrderedDict[Key, Artifact | Rejected] = OrderedDict()

    def make(self, candidates: Sequence[Candidate]) -> list[Artifact | Rejected]:
        """One artifact or refusal a candidate, two built at a time. Raises ToolchainMissing, EvaluatorDied."""
        odd = [_unreadable(source, tunables) for source, tunables in candidates]
        if any(odd):
            readable = iter(self.make([c for c, why in zip(candidates, odd, strict=True) if why is None]))
            return [next(readable) if why is None else why for why in odd]
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
            sent = [(k, *self._send(slot, *candidates[k])) for slot, k in enumerate(batch)]
            for k, child, number in sent:
                self._built[keys[k]] = self._receive(child, number)
        made = [self._built[key] for key in keys]
        self._forget(set(keys))
        return made

    def _send(self, slot: int, source: KernelSource, tunables: Mapping[str, int]) -> tuple[Child, int]:
        folder = self._folder((source.digest, tuple(sorted(tunables.items()))))
        folder.mkdir(parents=True, exist_ok=True)
        message = {
            "op": "build",
            "backend": address_of(self._backend),
            "source": source.to_json(),
            "tunables": dict(tunables),
            "workdir": str(folder),
        }
        for _ in range(2):  # one that died since its last build is noticed only when it is asked
            child = self._crew.builder(slot)
            with contextlib.suppress(ChildFailed):
                return child, child.send(message)
        raise EvaluatorDied("builders end before they are asked for a build")

    def _receive(self, child: Child, number: int) -> Artifact | Rejected:
        try:
            answer = child.wait(number, self._crew.limits.build_s)
        except ChildFailed as failure:
            stage = Stage.TIMEOUT if failure.timed_out else Stage.BUILD
            return Rejected(stage=stage, reason=f"build: {failure.what}", diagnosis=failure.output)
        if "missing" in answer:
            raise ToolchainMissing(answer["missing"])
        if "artifact" in answer:
            return self._artifact(answer["artifact"])
        reason = str(answer.get("refused") or answer.get("failed") or answer.get("error"))
        stage = Stage.SCREEN if "refused" in answer else Stage.BUILD
        return Rejected(stage=stage, reason=reason, diagnosis=str(answer.get("diagnosis", "")))

    def _artifact(self, about: Any) -> Artifact | Rejected:
        """What a builder says that it made: a compiler ran there on untrusted text, so its word is checked."""
        try:
            artifact = Artifact(**about)
            inside = Path(artifact.path).resolve().is_relative_to(Path(self._crew.workdir).resolve())
            if inside and Path(artifact.path).is_file() and not Path(artifact.path).is_symlink():
                return artifact
        except (TypeError, ValueError, OSError):
            pass
        return Rejected(stage=Stage.BUILD, reason="the build left no kernel where it should be")

    def _folder(self, key: Key) -> Path:
        return Path(self._crew.workdir) / sha256_text(key[0] + repr(list(key[1])))[:16]

    def _forget(self, needed: set[Key]) -> None:
        """Drop what was used longest ago, on disk too: a long search must not fill it."""
        for key in needed:
            self._built.move_to_end(key)
        while len(self._built) > max(KEPT, len(needed)):
            key, _ = self._built.popitem(last=False)
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder(key), ignore_errors=True)


def _unreadable(source: KernelSource, tunables: Mapping[str, int]) -> Rejected | None:
    """Refuses what has no digest: text that is no Unicode (a lone surrogate from JSON), tunables that are no small integers."""
    try:
        source.text.encode()
    except UnicodeEncodeError as failure:
        line = source.text.count("\n", 0, failure.start) + 1
        return Rejected(stage=Stage.SCREEN, reason="the source is no Unicode text", diagnosis=f"line {line}: {failure.reason}")
    for name, value in tunables.items():
        if type(value) is not int or abs(value) >= 1 << 62:
            return Rejected(stage=Stage.SCREEN, reason=f"tunable {name} is no 64-bit integer")
    return None

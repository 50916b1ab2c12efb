"""From a plan to accepted kernels: attempts, fixes, transfers of earlier winners, and tuning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelopt_compile.records import Accepted, Candidate, Experience, KernelSource, Plan, Rejected, Stage, Verdict
from accelopt_compile.search.memory import Configuration, fitted, known_tunables
from accelopt_compile.search.proposer import NoSource
from accelopt_compile.search.recorded import RecordedProposer, Thought
from accelopt_compile.search.selection import Group, relative, speed, within_noise
from accelopt_compile.search.task import SearchTask, Tried
from accelopt_compile.search.trials import BudgetSpent, Duplicate, Kernel, Trials, trial_key
from accelopt_compile.search.tuning import Measured, Tunables, polish, tune
from accelopt_compile.wording import times_text

TUNE_WITHIN = 0.85
"""A structure's numbers are searched if at its defaults it runs at this share of the best kernel's speed, or better."""

_NOT_FIXABLE = (Stage.SLOWER, Stage.CHEAT)
"""Nothing is broken in a slow kernel, and a cheat must not be taught to hide."""


_NOT_EVALUATED = "not evaluated"


@dataclass(kw_only=True)
class Expansion:
    """A plan on a parent while its kernels come in."""

    parent: Candidate
    plan: Plan
    children: list[Candidate] = field(default_factory=list)
    structure: dict[str, str] = field(default_factory=dict)
    outcome: str = _NOT_EVALUATED

    def group(self) -> Group:
        return Group(parent=self.parent, plan=self.plan, children=tuple(self.children))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A source waiting for its verdict; `call` names it for the fixer's calls."""

    call: str
    expansion: Expansion
    source: KernelSource


class Expander:
    """One round's worth of expansions. Accepted kernels are appended to `candidates`, the run's list, and to their
    expansion; what each plan came to is appended to `told`. `spent` says that the budget ended half way."""

    def __init__(
        self,
        *,
        task: SearchTask,
        tried: tuple[Tried, ...],
        proposer: RecordedProposer,
        trials: Trials,
        candidates: list[Candidate],
    ) -> None:
        self._task, self._tried, self._proposer, self._trials, self._candidates = task, tried, proposer, trials, candidates
        self.told: tuple[Tried, ...] = ()
        self.spent = False

    def task(self) -> SearchTask:
        """The task with everything that was tried up to now."""
        return replace(self._task, tried=self._tried + self.told)

    def evaluate(self, thought: Thought) -> list[Expansion]:
        """Evaluate all attempts of a parent's plans at their declared defaults, fix those that are broken, and tell."""
        expansions = [Expansion(parent=thought.parent, plan=plan) for plan in thought.plans]
        try:
            pairs = enumerate(zip(expansions, thought.attempts, strict=True))
            self._evaluate([a for i, (e, given) in pairs for a in _attempts(f"{thought.call}/{i}", e, given)])
        except BudgetSpent:
            self.spent = True
        for expansion in expansions:
            self.tell(expansion)
        return expansions

    def _evaluate(self, attempts: Sequence[Attempt]) -> None:
        for fix in range(1 + self._task.settings.fix_attempts):
            broken = self._judged(attempts)
            if not broken or fix == self._task.settings.fix_attempts:
                return
            asked = [(f"{attempt.call}/{fix}", attempt.source, rejected) for attempt, rejected in broken]
            fixed = self._proposer.fixes(self.task(), asked, left_s=self._trials.remaining_s)
            attempts = [replace(a, source=source) for (a, _), source in zip(broken, fixed, strict=True) if source is not None]

    def _judged(self, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Rejected]]:
        """Evaluates; those that a fixer may try."""
        broken = []
        verdicts = self._trials.run_each([(attempt.source, attempt.source.defaults()) for attempt in attempts])
        for attempt, verdict in zip(attempts, verdicts, strict=True):
            attempt.expansion.structure = dict(attempt.source.structure)
            attempt.expansion.outcome = _told(verdict)
            if isinstance(verdict, Accepted):
                self._accept(attempt.expansion, attempt.source, attempt.source.defaults(), verdict)
            elif isinstance(verdict, Rejected) and verdict.stage not in _NOT_FIXABLE:
                broken.append((attempt, verdict))
        return broken

    def tell(self, expansion: Expansion) -> None:
        """Note what a plan came to, for the proposer's next round."""
        fastest = max(expansion.children, key=speed, default=None)
        gain = None if fastest is None else relative(fastest, expansion.parent)
        told = expansion.outcome if fastest is None or gain is None else _gained(fastest, expansion.parent, gain)
        tried = Tried(parent=expansion.parent.id, plan=expansion.plan, structure=expansion.structure, relative=gain, outcome=told)
        self.told += (tried,)

    def take(self, seed: Candidate, kernels: Sequence[Kernel], verdicts: Iterator[Verdict | Duplicate]) -> list[Expansion]:
        """Warm starts and their verdicts, as far as the budget goes, each an expansion of the seed."""
        expansions: list[Expansion] = []
        try:
            for (source, tunables), verdict in zip(kernels, verdicts, strict=True):
                plan = _transfer_plan(seed, source, tunables)
                expansion = Expansion(parent=seed, plan=plan, structure=dict(source.structure), outcome=_told(verdict))
                expansions.append(expansion)
                if isinstance(verdict, Accepted):
                    self._accept(expansion, source, tunables, verdict)
                self.tell(expansion)
        except BudgetSpent:
            pass  # those evaluated so far still count; the caller's next look at the budget ends the search
        return expansions

    def tune(
        self,
        candidate: Candidate,
        expansions: list[Expansion],
        experiences: Sequence[Experience],
        *,
        tuned: set[str],
        best: Candidate,
    ) -> None:
        """Search the numbers of a kernel that made the beam, once a text, unless it is too slow to matter. Kernels join
        the expansion that the candidate came from; one of an earlier round becomes a parent of its own."""
        source, task = candidate.source, self._task
        text = trial_key(source, {})
        if text in tuned or len(source.tunables) == 0 or speed(candidate) < TUNE_WITHIN * speed(best):
            return
        tuned.add(text)
        numbers = self._free(candidate)
        tune(
            numbers,
            Measured(tunables=candidate.tunables, speed=speed(candidate)),
            measure=self._measuring(candidate, expansions),
            valid=functools.partial(self._new, source),
            priors=known_tunables(task, experiences, numbers),
            trials=task.settings.tuning_trials,
            rng=self._proposer.call(f"tune/{text}").rng,
        )

    def polish(self, candidate: Candidate, expansions: list[Expansion]) -> None:
        """Search around the numbers of the search's best kernel, step by step."""
        polish(
            self._free(candidate),
            Measured(tunables=candidate.tunables, speed=speed(candidate)),
            measure=self._measuring(candidate, expansions),
            valid=functools.partial(self._new, candidate.source),
            trials=self._task.settings.polish_trials,
        )

    def _new(self, source: KernelSource, tunables: Tunables) -> bool:
        """Whether these numbers can be asked for: a warm start may have had them under another source of the same text."""
        return self._task.backend.valid(source, tunables) and not self._trials.knows(source, tunables)

    def _free(self, candidate: Candidate) -> KernelSource:
        """The source with those tunables that can make a difference here; the others stay what they are."""
        source, task = candidate.source, self._task
        idle = task.backend.thread_tunables if task.threads == 1 else ()
        kept = {name: (candidate.tunables[name],) for name in idle if name in source.tunables}
        return replace(source, tunables={**source.tunables, **kept})

    def _measuring(
        self, candidate: Candidate, expansions: list[Expansion]
    ) -> Callable[[Sequence[Tunables]], Iterator[float | None]]:
        """What gives the speeds of other numbers of a kernel, None for a rejected one. They join the expansion that the kernel
        came from."""
        source = candidate.source
        expansion = next((e for e in expansions if any(child.id == candidate.id for child in e.children)), None)
        if expansion is None:
            expansion = Expansion(parent=candidate, plan=Plan(text="Tune the numbers, keep the structure."))
            expansions.append(expansion)

        def measure(rung: Sequence[Tunables]) -> Iterator[float | None]:
            for tunables, verdict in zip(rung, self._trials.run_each([(source, t) for t in rung]), strict=True):
                accepted = self._accept(expansion, source, tunables, verdict) if isinstance(verdict, Accepted) else None
                yield None if accepted is None else speed(accepted)

        return measure

    def _accept(self, expansion: Expansion, source: KernelSource, tunables: Mapping[str, int], verdict: Accepted) -> Candidate:
        candidate = Candidate(
            id=len(self._candidates),
            parent=expansion.parent.id,
            plan=expansion.plan,
            source=source,
            tunables=dict(tunables),
            verdict=verdict,
        )
        self._candidates.append(candidate)
        expansion.children.append(candidate)
        return candidate


def _attempts(call: str, expansion: Expansion, given: Sequence[KernelSource | NoSource]) -> list[Attempt]:
    for missing in (attempt for attempt in given if isinstance(attempt, NoSource)):
        expansion.outcome = f"no source: {missing.reason}"
    sources = [attempt for attempt in given if not isinstance(attempt, NoSource)]
    return [Attempt(call=f"{call}/{i}", expansion=expansion, source=source) for i, source in enumerate(sources)]


def warm_starts(task: SearchTask, seed: KernelSource, configurations: Sequence[Configuration]) -> list[Kernel]:
    """The kernels of this workload that the most promising of earlier winners' configurations stand for; the seed
    itself and others that come to the same are left out."""
    kernels: dict[str, Kernel] = {trial_key(seed, seed.defaults()): (seed, seed.defaults())}
    for configuration in configurations:
        if len(kernels) > task.settings.warm_starts:
            break
        if (kernel := _transferred(task, configuration)) is not None:
            kernels.setdefault(trial_key(*kernel), kernel)
    return list(kernels.values())[1:]


def _transferred(task: SearchTask, configuration: Configuration) -> Kernel | None:
    """A configuration on this workload: tunables that the workload does not have are left out. None where one of its choices
    cannot be made here."""
    try:
        source = task.backend.render(task.workload, configuration.structure)
    except ValueError:
        return None
    known = [fitted(source, tunables) for tunables in (configuration.tunables, configuration.together)]
    return source, next((t for t in known if task.backend.valid(source, t)), source.defaults())


def _transfer_plan(seed: Candidate, source: KernelSource, tunables: Mapping[str, int]) -> Plan:
    choices = [*sorted(source.structure.items()), *sorted(tunables.items())]
    change = {f"structure.{name}": value for name, value in source.structure.items() if seed.source.structure.get(name) != value}
    return Plan(text="Start from an earlier winner: " + ", ".join(f"{k}={v}" for k, v in choices) + ".", change=change)


def _gained(child: Candidate, parent: Candidate, gain: float) -> str:
    """What a plan came to: the gain over its parent, whether that is more than noise, and at which numbers."""
    noise = " (no more than noise)" if within_noise(child, parent) else ""
    numbers = ", ".join(f"{name}={value}" for name, value in sorted(child.tunables.items()))
    at = f", at {numbers}" if numbers and not child.source.rendered else ""
    basis = child.verdict.timing.basis
    gained, over = times_text(gain, basis), times_text(speed(child), basis)
    return f"{gained} the speed of the kernel it was tried on{noise}, {over} the baseline{at}"


def _told(verdict: Verdict | Duplicate) -> str:
    match verdict:
        case Duplicate():
            return "a duplicate of an earlier kernel"
        case Rejected():
            return f"rejected: {verdict.stage.value}: {verdict.reason}"
    return "accepted"

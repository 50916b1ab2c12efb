"""From a plan to accepted kernels: attempts, fixes, transfers of earlier winners, and tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from accelopt_compile.records import Accepted, Candidate, Experience, KernelSource, Plan, Rejected, Stage, Verdict
from accelopt_compile.search.memory import Configuration, fitted, known_tunables
from accelopt_compile.search.proposer import NoSource
from accelopt_compile.search.recorded import RecordedProposer
from accelopt_compile.search.selection import Group, relative, speed
from accelopt_compile.search.task import SearchTask, Tried
from accelopt_compile.search.trials import Duplicate, Trials, trial_key
from accelopt_compile.search.tuning import Measured, Tunables, tune

TUNE_WITHIN = 0.85
"""A structure's numbers are searched if at its defaults it runs at this share of the best kernel's speed, or better."""

_NOT_FIXABLE = (Stage.SLOWER, Stage.CHEAT)
"""Nothing is broken in a slow kernel, and a cheat must not be taught to hide."""


@dataclass(kw_only=True)
class Expansion:
    """A plan on a parent while its kernels come in."""

    parent: Candidate
    plan: Plan
    children: list[Candidate] = field(default_factory=list)

    def group(self) -> Group:
        return Group(parent=self.parent, plan=self.plan, children=tuple(self.children))


class Expander:
    """One round's worth of expansions. Accepted kernels are appended to `candidates`, the run's list, and to their
    expansion; what each plan came to is appended to `told`. Every method may raise BudgetSpent half way."""

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

    def task(self) -> SearchTask:
        """The task with everything that was tried up to now."""
        return replace(self._task, tried=self._tried + self.told)

    def expand(self, call: str, expansion: Expansion) -> None:
        """Ask for attempts at the plan, evaluate and fix each."""
        parent, plan, task = expansion.parent, expansion.plan, self.task()
        structure: dict[str, str] = {}
        outcome = "no source"
        try:
            attempts = self._proposer.attempt(call, task, parent, plan, task.settings.attempts_per_plan)
            for index, attempt in enumerate(attempts):
                if isinstance(attempt, NoSource):
                    outcome = f"no source: {attempt.reason}"
                    continue
                structure = dict(attempt.structure)
                verdict = self._attempt(f"{call}/{index}", expansion, attempt)
                outcome = _told(verdict)
        finally:
            self._tell(expansion, structure, outcome)

    def transfer(self, seed: Candidate, configuration: Configuration) -> Expansion | None:
        """Evaluate an earlier winner's configuration; None when it does not apply to this workload or adds nothing."""
        task = self._task
        grammar = task.backend.grammar(task.workload)
        if any(value not in grammar.get(name, ()) for name, value in configuration.structure.items()):
            return None
        source = task.backend.render(task.workload, configuration.structure)
        tunables = fitted(source, configuration.tunables)
        if not task.backend.valid(source, tunables):
            tunables = source.defaults()
        choices = [*sorted(configuration.structure.items()), *sorted(tunables.items())]
        change = {f"structure.{k}": v for k, v in source.structure.items() if seed.source.structure.get(k) != v}
        plan = Plan(text="Start from an earlier winner: " + ", ".join(f"{k}={v}" for k, v in choices) + ".", change=change)
        expansion = Expansion(parent=seed, plan=plan)
        verdict = self._trials.run(source, tunables)
        if isinstance(verdict, Duplicate):
            return None
        if isinstance(verdict, Accepted):
            self._accept(expansion, source, tunables, verdict)
        self._tell(expansion, dict(source.structure), _told(verdict))
        return expansion

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
        expansion = next((e for e in expansions if any(child.id == candidate.id for child in e.children)), None)
        if expansion is None:
            expansion = Expansion(parent=candidate, plan=Plan(text="Tune the numbers, keep the structure."))
            expansions.append(expansion)

        def measure(tunables: Tunables) -> float | None:
            verdict = self._trials.run(source, tunables)
            return speed(self._accept(expansion, source, tunables, verdict)) if isinstance(verdict, Accepted) else None

        tune(
            source,
            Measured(tunables=candidate.tunables, speed=speed(candidate)),
            measure=measure,
            valid=lambda tunables: task.backend.valid(source, tunables),
            priors=known_tunables(task, experiences, source),
            trials=task.settings.tuning_trials,
            rng=self._proposer.rng(f"tune/{text}"),
        )

    def _attempt(self, call: str, expansion: Expansion, source: KernelSource) -> Verdict | Duplicate:
        """One source and, while it is broken, its fixes."""
        verdict = self._trials.run(source, source.defaults())
        for fix in range(self._task.settings.fix_attempts):
            if not isinstance(verdict, Rejected) or verdict.stage in _NOT_FIXABLE:
                break
            if (fixed := self._proposer.fix(f"{call}/{fix}", self.task(), source, verdict)) is None:
                break
            source, retried = fixed, self._trials.run(fixed, fixed.defaults())
            if isinstance(retried, Duplicate):
                break
            verdict = retried
        if isinstance(verdict, Accepted):
            self._accept(expansion, source, source.defaults(), verdict)
        return verdict

    def _accept(self, expansion: Expansion, source: KernelSource, tunables: Tunables, verdict: Accepted) -> Candidate:
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

    def _tell(self, expansion: Expansion, structure: dict[str, str], outcome: str) -> None:
        fastest = max(expansion.children, key=speed, default=None)
        gain = None if fastest is None else relative(fastest, expansion.parent)
        told = outcome if gain is None else f"{gain:.2f}x its parent"
        self.told += (Tried(parent=expansion.parent.id, plan=expansion.plan, structure=structure, relative=gain, outcome=told),)


def _told(verdict: Verdict | Duplicate) -> str:
    match verdict:
        case Duplicate():
            return "a duplicate of an earlier kernel"
        case Rejected():
            return f"rejected: {verdict.stage.value}: {verdict.reason}"
    return "accepted"

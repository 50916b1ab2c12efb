"""What a search leaves on its way: plans, candidates, and experiences for later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accelopt_compile.records.kernels import Accepted, Basis, KernelSource


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One step to try on one candidate. `text` goes to the executor verbatim; `change` is its machine form, if any
    (built-in planner: {"structure.NAME": "VALUE"})."""

    text: str
    change: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An accepted kernel of the run. `id` counts candidates within the run; `parent` is None for the seed."""

    id: int
    parent: int | None
    plan: Plan | None
    source: KernelSource
    tunables: Mapping[str, int]
    verdict: Accepted


@dataclass(frozen=True, kw_only=True)
class Experience:
    """A slow-fast pair and what it taught. Scope: (backend, family, arch). `change` as in `Plan`; `speedup` > 1 is
    the measured fast over slow ratio; a change that hurt is stored with its direction reversed (`change` is then the
    change to undo and `helped` is False).

    `basis` says whether the two were timed, or their times estimated. `title` is the lesson in a few words, where it has any.
    `change`, `structure` and `tunables` are empty where a kernel of the pair was written by a model or a person: no
    configuration stands for it. `origin` says where it is from, in words for people and filters: run, round, slow_candidate,
    fast_candidate, plan, source (the fast kernel's digest), slow_by and fast_by (who wrote the kernels), proposer, model,
    env.NAME for the environment.
    """

    backend: str
    family: str
    arch: str
    workload: str
    change: Mapping[str, str]
    helped: bool
    speedup: float
    lesson: str
    slow: str = ""
    fast: str = ""
    structure: Mapping[str, str] = field(default_factory=dict)
    tunables: Mapping[str, int] = field(default_factory=dict)
    title: str = ""
    origin: Mapping[str, str] = field(default_factory=dict)
    basis: Basis = "measured"

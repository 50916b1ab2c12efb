"""A world without a compiler: a backend and an evaluator over a synthetic speed landscape.

The landscape gives every structure and combination of tunables a speed. Most of it is common to a family of
workloads, some is the workload's own, and choices interact, so that a search has local optima and experience carries
over, but not perfectly. Everything is a function of seeds: two runs see the same world, noise included.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelopt_backends.base import NO_PRODUCTS, Guide, Kernel, Products, Ready, Refusal, Roofline, Standalone
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.records import (
    Accepted,
    Artifact,
    Binding,
    ErrorReport,
    KernelSource,
    Node,
    Ref,
    Rejected,
    Stage,
    TensorSpec,
    Timing,
    Verdict,
    Workload,
)
from accelopt_compile.search.task import SearchSettings, SearchTask
from accelopt_compile.search.trials import Effort

GRAMMAR: Mapping[str, tuple[str, ...]] = {
    "loop": ("rows", "tiles", "columns", "flat"),
    "sum": ("one", "four", "pairwise"),
    "store": ("plain", "stream"),
    "vector": ("auto", "explicit", "masked"),
    "prefetch": ("none", "near", "far"),
    "exp": ("library", "polynomial"),
}
TUNABLES: Mapping[str, tuple[int, ...]] = {
    "TILE": (64, 16, 32, 128, 256, 512),
    "UNROLL": (1, 2, 4, 8, 16),
    "GRAIN": (1024, 256, 4096, 16384, 65536),
}
_BASELINE_US = 100.0


def simulated_workload(number: int) -> Workload:
    """A small valid workload; each number another one."""
    spec = TensorSpec(dtype="f32", shape=("s0", 64 + number), strides=(64 + number, 1))
    node = Node(op="aten.exp.default", args=(Ref("i", 0),), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=("s0",))


class SimulatedClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """Logarithms of speedup over the baseline. `kinship`, 0 to 1, is the share that a family's workloads have in
    common; the default structure lies at `start` times the baseline, before the tunables' penalty."""

    family: str
    workload: int
    kinship: float = 0.8
    start: float = 0.8

    def speedup(self, structure: Mapping[str, str], tunables: Mapping[str, int]) -> float:
        """True speed over the baseline's, without noise."""
        return self.start * math.exp(self._structure(structure) - self._structure({}) - self._numbers(structure, tunables))

    def flaw(self, structure: Mapping[str, str]) -> Stage | None:
        """Where a structure falls, for the few that do; never the default one."""
        choices = _filled(structure)
        if choices["loop"] == "flat" and choices["sum"] == "pairwise":
            return Stage.NUMERICS
        if choices["vector"] == "masked" and choices["store"] == "stream":
            return Stage.BUILD
        return None

    def _structure(self, structure: Mapping[str, str]) -> float:
        choices = _filled(structure)
        gain = sum(self._drawn(0.16, name, value) for name, value in choices.items())
        pairs = (("loop", "vector"), ("loop", "sum"), ("store", "prefetch"))
        return gain + sum(self._drawn(0.08, a, choices[a], b, choices[b]) for a, b in pairs)

    def _numbers(self, structure: Mapping[str, str], tunables: Mapping[str, int]) -> float:
        """A bowl around the loop's best numbers, in steps along each tunable's values."""
        loop = _filled(structure)["loop"]
        penalty = 0.0
        for name, values in TUNABLES.items():
            ordered = sorted(values)
            best = (len(ordered) - 1) * _uniform(self.family, "best", name, loop) + self._drawn(0.3, "best", name)
            penalty += 0.02 * (ordered.index(tunables.get(name, values[0])) - best) ** 2
        return penalty

    def _drawn(self, spread: float, *what: str) -> float:
        """A normal number, in part the family's and in part the workload's."""
        common = random.Random("/".join((self.family, *what))).gauss(0, spread)
        own = random.Random("/".join((self.family, str(self.workload), *what))).gauss(0, spread)
        return self.kinship * common + math.sqrt(1 - self.kinship**2) * own


def _filled(structure: Mapping[str, str]) -> dict[str, str]:
    return {name: structure.get(name, values[0]) for name, values in GRAMMAR.items()}


def _uniform(*what: str) -> float:
    return random.Random("/".join(what)).random()


@dataclass(kw_only=True)
class SimulatedBackend:
    """Renders readable pseudo-kernels. A `Backend`, but for loading: its kernels cannot run. With `terse`, sources name
    only the choices that they were asked for, as a backend may."""

    name: str = "simulated"
    device: str = "cpu"
    automatic: bool = False
    thread_tunables: tuple[str, ...] = ()
    products: Products = NO_PRODUCTS
    roofline_us: float = 10.0
    terse: bool = False

    def probe(self) -> Ready:
        return Ready(target=f"{self.name}-cpu", environment={})

    def supports(self, workload: Workload) -> str | None:
        return None

    def seed(self, workload: Workload) -> KernelSource:
        return replace(self.render(workload, {}), origin="seed")

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        return GRAMMAR

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        for name, value in structure.items():
            if value not in GRAMMAR.get(name, ()):
                raise ValueError(f"{name}={value} is not in the grammar")
        named = dict(structure) if self.terse else _filled(structure)
        return KernelSource(language="cpp", text=_text(structure), tunables=TUNABLES, structure=named, origin="mutation")

    def valid(self, source: KernelSource, tunables: Mapping[str, int]) -> bool:
        return tunables["TILE"] * tunables["UNROLL"] <= 4096

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        return ()

    def build(self, source: KernelSource, tunables: Mapping[str, int], workdir: str) -> Artifact:
        raise ToolchainFailed("a simulated kernel cannot be built")

    def load(self, artifact: Artifact) -> Kernel:
        raise OSError("a simulated kernel cannot be loaded")

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        return Roofline(seconds=self.roofline_us * 1e-6, bound="memory")

    def estimate(self, artifact: Artifact, workload: Workload, binding: Binding) -> float:
        raise NotImplementedError("the landscape gives the times of this world")

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        return source.text

    def written(self, text: str) -> KernelSource:
        """Lines of `name = value;`; every tunable is declared. Raises ValueError for a choice that there is not."""
        chosen = dict(re.findall(r"^(\w+) = (\w+);$", text, re.MULTILINE))
        if not chosen:
            raise ValueError("no line says `name = value;`")
        return replace(self.render(simulated_workload(0), chosen), origin="llm")

    def standalone(self, source: KernelSource, tunables: Mapping[str, int], target: str) -> Standalone:
        raise ValueError("simulated kernels compute nothing")

    def guide(self) -> Guide:
        facts = "---\nversion: 1\n---\nA kernel is a list of choices: " + "; ".join(f"{k} in {v}" for k, v in GRAMMAR.items())
        writing = "---\nversion: 1\n---\nOne line `name = value;` a choice."
        return Guide(language="choices", fences=("text", "cpp"), facts=facts, writing=writing)


def _text(structure: Mapping[str, str]) -> str:
    lines = [f"{name} = {value};" for name, value in _filled(structure).items()]
    return "// a simulated kernel\n" + "\n".join(lines) + "\n"


@dataclass(kw_only=True)
class SimulatedEvaluator:
    """Verdicts from a landscape. `evaluations` lists what was asked, in order; each takes `seconds` of `clock`, a full
    one three times that. The noise of a kernel is the same whenever it is asked for with the same effort."""

    landscape: Landscape
    noise: float = 0.01
    seed: int = 0
    seconds: float = 1.0
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    evaluations: list[tuple[str, tuple[tuple[str, int], ...], Effort]] = field(default_factory=list)

    def evaluate_each(
        self, candidates: Sequence[tuple[KernelSource, Mapping[str, int]]], *, effort: Effort = "quick"
    ) -> Iterator[Verdict]:
        for source, tunables in candidates:
            yield self.evaluate(source, tunables, effort=effort)

    def evaluate(self, source: KernelSource, tunables: Mapping[str, int], *, effort: Effort = "quick") -> Verdict:
        numbers = tuple(sorted(tunables.items()))
        self.evaluations.append((source.text, numbers, effort))
        self.clock.advance(self.seconds * (3 if effort == "full" else 1))
        if (stage := self.landscape.flaw(source.structure)) is not None:
            return Rejected(stage=stage, reason="a flaw of this structure")
        speedup = self.landscape.speedup(source.structure, tunables)
        noise = self.noise / (2 if effort == "full" else 1)
        shown = speedup * math.exp(random.Random(f"{self.seed}/{source.text}/{numbers}/{effort}").gauss(0, noise))
        timing = Timing(
            kernel_us=_BASELINE_US / shown,
            baselines_us={"inductor": _BASELINE_US, "eager": 2 * _BASELINE_US},
            speedup=shown,
            low=shown * (1 - 2 * noise),
            high=shown * (1 + 2 * noise),
            blocks=5,
            threads=1,
            noise=noise,
        )
        return Accepted(errors=ErrorReport(worst_share=0.1, cases=8), timing=timing)


def simulated_task(number: int, *, family: str = "norm", settings: SearchSettings | None = None) -> SearchTask:
    """The search task of workload `number`."""
    return SearchTask(
        workload=simulated_workload(number),
        binding={"s0": 128},
        target="simulated-cpu",
        backend=SimulatedBackend(),
        family=family,
        settings=SearchSettings() if settings is None else settings,
    )

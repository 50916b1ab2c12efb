"""The verifier under test: mutants of honest C++ kernels, none of which may be accepted unless it computes the same.

    python -m benchmarks.bench_verifier --quick
    python -m benchmarks.bench_verifier --per-case 20 --seed 1       into results/verifier-<date>.json
    python -m benchmarks.bench_verifier --resume                     the cases that today's file lacks

Each mutant is built and evaluated quickly; what is accepted is evaluated again at full effort. A survivor is equivalent when
its machine code is the original's, or its results are, bit for bit, on every family of inputs at the binding and a small one;
the rest survived, and each is a hole or an honest variant to be explained. The result file is
written after each case.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.mutations import Mutant, mutants

CHUNK = 8
CAUGHT_AT_LEAST = 0.995
EXPLAINED = {
    r"bf16.*cut_\(acc": "a lane sums two numbers here: a fraction of the rounding of the output",
    r"column_mean.*blocks = \(96 \+ BLOCK - 1\) \* BLOCK": "blocks behind the last one are empty; the sums are cut elsewhere",
}
"""Changes that compute the same function and differ in rounding only: (dtype of the case, changed line) matches."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two cases, six mutants each")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--per-case", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants")
    parser.add_argument("--resume", action="store_true", help="keep the cases of today's result file")
    chosen = parser.parse_args()
    from benchmarks.mutant_cases import CASES, QUICK

    names = [n for n in (QUICK if chosen.quick else CASES) if re.search(chosen.only, n)]
    found: dict[str, Any] = _earlier(chosen.quick) if chosen.resume else {}
    path = None
    for name in names:
        if name in found:
            continue
        found[name] = tried(name, CASES[name](), 6 if chosen.quick else chosen.per_case, chosen.seed, again=name in QUICK)
        print(line(name, found[name]), flush=True)
        path = harness.write_result("verifier", {"cases": found, "summary": summary(found)}, quick=chosen.quick)
    harness.finish("verifier", {**summary(found), "results": str(path)})


def _earlier(quick: bool) -> dict[str, Any]:
    kind = "verifier-quick" if quick else "verifier"
    path = harness.RESULTS / f"{kind}-{datetime.now(timezone.utc).date()}.json"
    loaded: dict[str, Any] = json.loads(path.read_text())["cases"] if path.exists() else {}
    return loaded


def tried(name: str, honest: Any, count: int, seed: int, *, again: bool) -> dict[str, Any]:
    """All mutants of one kernel: {"seconds", "mutants": [...]}, each mutant with what became of it."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.evaluate import Limits, open_evaluator
    from accelopt_compile.records import Accepted, KernelSource

    backend = CppBackend()
    seed_source = backend.seed(honest.workload)
    tunables = {**seed_source.defaults(), **({"GRAIN": 4096} if 4096 in seed_source.tunables.get("GRAIN", ()) else {})}
    chosen = mutants(seed_source.text, count, seed)

    def source(mutant: Mutant) -> tuple[KernelSource, Mapping[str, int]]:
        made = KernelSource(language="cpp", text=mutant.text, tunables=seed_source.tunables, origin="mutation")
        return made, tunables

    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="accelopt-verifier-") as folder,
        open_evaluator(
            honest.workload, honest.binding, backend=backend, threads=2, seed=11, workdir=folder, limits=Limits(call_s=2.0)
        ) as evaluator,
    ):
        seconds = stages(evaluator, seed_source, tunables, again=again)
        if "refused" in seconds:
            return {"seconds": seconds, "mutants": []}
        for start in range(0, len(chosen), CHUNK):
            chunk = chosen[start : start + CHUNK]
            for mutant, verdict in zip(chunk, evaluator.evaluate_many([source(m) for m in chunk]), strict=True):
                effort = "quick"
                built = [object_of(folder, one, tunables) for one in (seed_source, source(mutant)[0])]
                alike = isinstance(verdict, Accepted) and code(built[0]) == code(built[1])
                if isinstance(verdict, Accepted) and not alike:
                    effort, verdict = "full", evaluator.evaluate(*source(mutant), effort="full")
                rows.append(row(mutant, verdict, effort))
                if alike:
                    rows[-1]["equivalent"] = "same machine code"
                elif isinstance(verdict, Accepted):
                    differs = difference(honest, built)
                    why = "" if differs else "same bits on every case"
                    why = why or next((w for p, w in EXPLAINED.items() if re.search(p, f"{name} {mutant.after}")), "")
                    rows[-1] |= {"equivalent": why} if why else {"differs": differs}
    seconds["all"] = round(time.perf_counter() - began, 1)
    return {"seconds": seconds, "mutants": rows}


def stages(evaluator: Any, source: Any, tunables: Mapping[str, int], *, again: bool) -> dict[str, Any]:
    """Seconds of each evaluation of the unchanged kernel, build apart; `again`: a full one with the golden answers there."""
    from accelopt_compile.records import Rejected

    taken: dict[str, Any] = {}
    efforts = (("first quick", "quick"), ("quick", "quick"), ("first full", "full"), ("full", "full"))
    for name, effort in efforts if again else efforts[:3]:
        began = time.perf_counter()
        verdict = evaluator.evaluate(source, tunables, effort=effort)
        taken[name] = round(time.perf_counter() - began, 3)
        if isinstance(verdict, Rejected):
            return taken | {"refused": f"{verdict.stage.value}: {verdict.reason} {verdict.diagnosis}"[:500]}
        taken["build"] = round(float(verdict.features.get("build_s", 0.0)), 3)
        taken["cases"] = verdict.errors.cases
        taken["worst share"] = round(verdict.errors.worst_share, 4)
    return taken


def row(mutant: Mutant, verdict: Any, effort: str) -> dict[str, Any]:
    from accelopt_compile.records import Rejected

    about = {"operator": mutant.operator, "line": mutant.line, "before": mutant.before, "after": mutant.after, "effort": effort}
    if isinstance(verdict, Rejected):
        return about | {"stage": verdict.stage.value, "reason": f"{verdict.reason}: {verdict.diagnosis}"[:200]}
    return about | {"stage": "accepted", "worst_share": verdict.errors.worst_share}


def object_of(folder: str, source: Any, tunables: Mapping[str, int]) -> str:
    """The shared object that the evaluator built of a source; "" where it has none."""
    from accelopt_compile.records import sha256_text

    key = sha256_text(source.text + repr(sorted(tunables.items())))[:24]
    return next((str(path) for path in Path(folder).rglob(f"k{key}*.so")), "")


def code(path: str) -> bytes:
    """The machine code and constants of a shared object."""
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:
        elf = ELFFile(file)
        return b"".join(s.data() for s in elf.iter_sections() if s.name in (".text", ".rodata") or s.name.startswith(".rodata"))


def difference(honest: Any, paths: Sequence[str]) -> str:
    """The first case on which two kernels do not give the same bits; empty when there is none."""
    from accelopt_backends.cpp import CppBackend
    from accelopt_compile.evaluate.answers import Answer, Answers, Case
    from accelopt_compile.evaluate.buffers import Buffers, bits_equal
    from accelopt_compile.evaluate.inputs import FAMILIES, SMALL
    from accelopt_compile.records import Artifact

    kernels = [CppBackend().load(Artifact(path=path, source_digest="", tunables={})) for path in paths]
    answers = Answers(honest.workload)
    for binding in (honest.binding, {name: min(size, SMALL) for name, size in honest.binding.items()}):
        buffers = Buffers(honest.workload, binding)
        for family in FAMILIES:
            answer = answers.get(Case(tuple(sorted(binding.items())), family, 77), probes=2)
            if not isinstance(answer, Answer):
                continue
            found = []
            for kernel in kernels:
                buffers.fill(answer.inputs, 0)
                buffers.poison(0)
                kernel(buffers.pointers(), buffers.sizes, 2)
                found.append(buffers.results())
            if not bits_equal(*found):
                return f"{family} at {binding}"
    return ""


def fate(one: Mapping[str, Any]) -> str:
    if one["stage"] != "accepted":
        return "does not build" if one["stage"] in ("build", "screen") else "killed"
    return "equivalent" if "equivalent" in one else "survived"


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Counts over all cases. `caught` is killed over killed and survived: what does not build or is equivalent is in neither."""
    every = [one for case in found.values() for one in case["mutants"]]
    fates = collections.Counter(map(fate, every))
    killed, survived = fates["killed"], fates["survived"]
    stages_ = collections.Counter(f"{m['stage']} ({m['effort']})" for m in every if fate(m) == "killed")
    caught = killed / max(killed + survived, 1)
    timed = [case["seconds"] for case in found.values() if "refused" not in case["seconds"]]
    return {
        "cases": len(found),
        "refused_honest": [name for name, case in found.items() if "refused" in case["seconds"]],
        "mutants": len(every),
        **{name.replace(" ", "_"): fates[name] for name in ("killed", "survived", "equivalent", "does not build")},
        "killed_at": dict(stages_),
        "caught": round(caught, 5),
        "passed": caught >= CAUGHT_AT_LEAST,
        "median_s": {
            k: round(statistics.median(t[k] for t in timed if k in t), 3)
            for k in ("build", "quick", "first full", "full")
            if any(k in t for t in timed)
        },
    }


def line(name: str, case: Mapping[str, Any]) -> str:
    if "refused" in case["seconds"]:
        return f"{name:28} the honest kernel was refused: {case['seconds']['refused']}"
    fates = collections.Counter(map(fate, case["mutants"]))
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(fates.items()))
    survivors = [
        f"    {one['operator']}, line {one['line']}, differs on {one['differs']}\n      - {one['before']}\n      + {one['after']}"
        for one in case["mutants"]
        if fate(one) == "survived"
    ]
    return "\n".join([f"{name:28} {text} ({case['seconds']['all']} s)", *survivors])


if __name__ == "__main__":
    main()

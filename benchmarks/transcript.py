"""Recorded runs of the agents: taken out of a store to be kept, and repeated without a model and without a compiler.

    python -m benchmarks.transcript export RUN FOLDER [--cache-dir DIR]     a run of `accelopt tune --model ...`
    python -m benchmarks.transcript replay FOLDER...                        the same run again; exit code 1 where it differs

A transcript has what came from outside, and nothing else is read: the model's replies (`calls.jsonl.gz`), the evaluator's
verdicts (in `events.jsonl.gz`), and in `frozen.json` what depends on the day: the workload, the seed's text, the library that
authors see as one line, the guide, the roofline. A replay runs the search of today on these and compares every event.

Promises: plans, sources, beams, lessons, verdicts asked for and the winner come out as recorded, bit for bit. Does not promise
that the prompts are worded as they were: a reply is found by the request's hash, and where a prompt has been reworded since, by
the name of the call in the run; `reworded` counts these.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelopt_backends.base import Guide, Roofline
from accelopt_backends.cpp import CppBackend, authored
from accelopt_compile.events import MemoryLog
from accelopt_compile.llm.client import ROLES, Reply, Request
from accelopt_compile.llm.recording import ReplayClient, recorded_calls
from accelopt_compile.records import Binding, KernelSource, Verdict, Workload, source_from_json
from accelopt_compile.search import Budget, Memory, SearchResult, SearchSettings, SearchTask, search
from accelopt_compile.search.agents import AgentProposer
from accelopt_compile.search.builtin import BuiltinProposer
from accelopt_compile.search.simulated import SimulatedClock
from accelopt_compile.search.state import experience_from, verdict_from
from accelopt_compile.search.trials import Effort, Kernel, adopts, trial_key

KEPT = ("events.jsonl", "calls.jsonl")
_OUTSIDE = ("seq", "at_s", "seconds")
"""Fields of an event that a replay cannot have: they say when."""
_INSIDE = ("seed", "plans", "attempts", "fix", "verdict", "lesson", "round", "final", "takeover", "stop")


class FrozenBackend(CppBackend):
    """The C++ backend of the day of a recording, as far as a search asks it: grain was tuned on one thread then."""

    thread_tunables = ()

    def __init__(self, frozen: Mapping[str, Any]) -> None:
        self._frozen = frozen
        self._library = tuple(frozen["library"])

    def seed(self, workload: Workload) -> KernelSource:
        return source_from_json(self._frozen["seed"])

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(values) for name, values in self._frozen["grammar"].items()}

    def shown(self, source: KernelSource, tunables: Mapping[str, int]) -> str:
        return authored.shown(source, tunables, self._library)

    def written(self, text: str) -> KernelSource:
        return authored.written(text, self._library)

    def guide(self) -> Guide:
        guide = self._frozen["guide"]
        return Guide(**{**guide, "fences": tuple(guide["fences"]), "machine": tuple(guide["machine"])})

    def roofline(self, workload: Workload, binding: Binding, threads: int, *, fresh: bool = False) -> Roofline:
        return Roofline(**self._frozen["roofline"])


class NothingNew:
    """An evaluator of recorded verdicts. It is asked for what a search takes from no log: a kernel that is right in full."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self._recorded = recorded

    def evaluate_each(self, candidates: Sequence[Kernel], *, effort: Effort = "quick") -> Iterator[Verdict]:
        for source, tunables in candidates:
            key = trial_key(source, tunables, effort)
            assert key in self._recorded, f"kernel {key} has no recorded verdict: the run is not the recorded one"
            yield verdict_from(self._recorded[key])


def export(run: Any, store: Any, folder: Path) -> None:
    """Write the transcript of a finished run. Its workload must still be in the store."""
    about = dict(run.about)
    workload = store.workload(about["workload"])
    backend = CppBackend()
    events = [json.loads(line) for line in run.events_path.read_text().splitlines()]
    state = run.load_state()
    frozen = {
        "workload": workload.to_json(),
        "seed": state["candidates"][0]["source"],
        "grammar": {name: list(values) for name, values in backend.grammar(workload).items()},
        "library": list(authored.library()),
        "guide": {**asdict(backend.guide()), "machine": told(run.calls_path)},
        "roofline": {"seconds": about["roofline_us"] / 1e6, "bound": about.get("bound", "memory")},
        "prior": state["prior"],
        "rng": f"{about['seed']} {about['workload']}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("run.json", about), ("result.json", run.result()), ("frozen.json", frozen)):
        (folder / name).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    for name in KEPT:
        with gzip.GzipFile(folder / f"{name}.gz", "wb", mtime=0) as file:  # no time in it: equal runs, equal bytes
            file.write((run.path / name).read_bytes())
    assert any(e["kind"] == "stop" for e in events), "the run has not ended"


def told(calls: Path) -> list[str]:
    """What the prompts of a recording say of the machine, a line each."""
    system = next(call.request.system for call in recorded_calls(calls) if "## The machine" in call.request.system)
    section = system.partition("## The machine")[2].partition("\n## ")[0]
    return [line.removeprefix("- ") for line in section.splitlines() if line.startswith("- ")]


def replay(folder: Path) -> dict[str, Any]:
    """Run the search again. {"run", "same", "differs", "calls", "reworded", "winner", "speedup"}; `differs` names the first
    event that came out otherwise, "" for none."""
    about, events, log, result, counting = _repeated(folder)
    differs = difference(inside(events), inside(log.events()))
    best = result.best
    return {
        "run": about["id"],
        "same": not differs,
        "differs": differs,
        "calls": counting.asked,
        "reworded": counting.reworded,
        "winner": None if best is None else best.source.origin,
        "speedup": None if best is None else round(best.verdict.timing.speedup, 4),
    }


def winner_of(folder: Path) -> tuple[KernelSource, Mapping[str, int]]:
    """The kernel that a recorded run ended with, or the fastest it accepted."""
    result = _repeated(folder)[3]
    best = result.best or max(result.candidates, key=lambda c: c.verdict.timing.speedup)
    return best.source, best.tunables


def _repeated(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], MemoryLog, SearchResult, Counting]:
    about, frozen = (json.loads((folder / name).read_text()) for name in ("run.json", "frozen.json"))
    events = [json.loads(line) for line in gzip.decompress((folder / "events.jsonl.gz").read_bytes()).splitlines()][1:]
    with tempfile.TemporaryDirectory() as place:
        calls = Path(place) / "calls.jsonl"
        calls.write_bytes(gzip.decompress((folder / "calls.jsonl.gz").read_bytes()))
        counting = Counting(ReplayClient(calls, by_call=True), {call.key for call in recorded_calls(calls)})
        log, result = repeat(about, frozen, events, counting)
    return about, events, log, result, counting


class Counting:
    """A client that counts requests, and those whose words are not in the recording."""

    def __init__(self, client: ReplayClient, known: set[str]) -> None:
        self._client, self._known, self.asked, self.reworded = client, known, 0, 0

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        self.reworded += request.key not in self._known
        return self._client.ask(request)


def repeat(
    about: Mapping[str, Any], frozen: Mapping[str, Any], events: Sequence[Mapping[str, Any]], client: Counting
) -> tuple[MemoryLog, SearchResult]:
    """The search of a transcript, with what depended on machine and clock in the log beforehand."""
    log = MemoryLog()
    adopted = {str(e["key"]): e["verdict"] for e in events if e["kind"] == "verdict" and adopts(e)}
    for event in events:
        if event["kind"] in ("verdict", "fill") and event.get("key") not in adopted:
            log.append(event["kind"], **{k: v for k, v in event.items() if k not in ("seq", "at_s", "kind")})
    clock = SimulatedClock()
    models = {role: about["models"][role].split(",") for role in ROLES}
    task = SearchTask(
        workload=Workload.from_json(frozen["workload"]),
        binding=about["binding"],
        target=about["target"],
        backend=FrozenBackend(frozen),
        family=about["family"],
        settings=SearchSettings(**about["settings"]),
        threads=int(about["threads"]),
    )
    result = search(
        task,
        proposer=AgentProposer(client, models=models),
        companion=BuiltinProposer() if about["proposer"] == "both" else None,
        evaluator=NothingNew(adopted),
        memory=Memory(prior=[experience_from(e) for e in frozen["prior"]]),
        budget=Budget(clock=clock),
        rng=random.Random(frozen["rng"]),
        clock=clock,
        log=log,
    )
    return log, result


def inside(events: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events that a search decides, without what says when. Verdicts are compared as they were asked for."""
    kept = [{k: v for k, v in event.items() if k not in _OUTSIDE} for event in events if event["kind"] in _INSIDE]
    verdicts = sorted((e for e in kept if e["kind"] == "verdict"), key=lambda e: str(e["key"]))
    return [*(e for e in kept if e["kind"] != "verdict"), *verdicts]


def difference(recorded: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """The first event in which two runs differ, in words; "" for none."""
    for number, (a, b) in enumerate(zip(recorded, now, strict=False)):
        if a != b:
            fields = sorted(k for k in {*a, *b} if a.get(k) != b.get(k))
            return f"event {number} ({a['kind']} {a.get('call', '')}, now {b['kind']} {b.get('call', '')}): {', '.join(fields)}"
    return "" if len(recorded) == len(now) else f"{len(recorded)} events recorded, {len(now)} now"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export")
    exporting.add_argument("run")
    exporting.add_argument("folder", type=Path)
    exporting.add_argument("--cache-dir")
    replaying = commands.add_parser("replay")
    replaying.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    if given.command == "export":
        from accelopt_cache.kernel_store import Store

        store = Store.open(given.cache_dir)
        export(store.runs.open(given.run), store, given.folder)
        return
    found = [replay(folder) for folder in given.folders]
    for one in found:
        print(json.dumps(one))
    sys.exit(0 if all(one["same"] for one in found) else 1)


if __name__ == "__main__":
    main()

"""Regions: ours, Inductor, Inductor with max-autotune and eager on over 40 functions that models are made of.

    python -m benchmarks.bench_regions --quick
    python -m benchmarks.bench_regions --threads 1,2 --budget-s 30        every case, a file a device and thread count
    python -m benchmarks.bench_regions --resume --only 'softmax|norm'     what is missing of these
    python -m benchmarks.bench_regions --recheck                          adopted kernels again, in fresh processes
    python -m benchmarks.bench_regions --aa 40                            one kernel against itself, by the same rule
    python -m benchmarks.bench_regions --level avx2                       as on a processor without AVX-512
    python -m benchmarks.bench_regions --survey                           regions and seeds, without tuning

The result file is written after each case; Ctrl-C keeps what there is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, region_report
from benchmarks.region_job import stream


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6 small cases, a small budget")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--dtype", choices=("f32", "bf16"))
    parser.add_argument("--threads", help="comma-separated thread counts, a result file each (default: 1,2; 1 with --quick)")
    parser.add_argument("--budget-s", type=float, help="seconds of search per compiled graph (default: 30; 6 with --quick)")
    parser.add_argument("--limit-s", type=float, help="seconds of timing per case (default: 12; 2 with --quick)")
    parser.add_argument("--cache-dir", help="kernel store to use (default: a fresh one; with --resume and --recheck the file's)")
    parser.add_argument("--allocator", choices=("kept", "default"), default="kept", help=ALLOCATORS)
    parser.add_argument("--resume", action="store_true", help="skip the cases that are in the result file")
    parser.add_argument("--recheck", action="store_true", help="measure adopted cases again in fresh processes")
    parser.add_argument("--survey", action="store_true", help="regions, support and the seeds' verdicts only")
    parser.add_argument("--aa", type=int, default=0, metavar="N", help="N trials of one kernel against itself")
    parser.add_argument("--level", choices=("native", "avx2"), default="native", help="instructions that all sides may use")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="directory of the result files")
    parser.add_argument("--log", default="quiet", choices=("quiet", "info", "debug"))
    chosen = parser.parse_args(argv)
    chosen.threads = [int(n) for n in (chosen.threads or ("1" if chosen.quick else "1,2")).split(",")]
    chosen.budget_s = chosen.budget_s if chosen.budget_s is not None else 6.0 if chosen.quick else 30.0
    chosen.limit_s = chosen.limit_s if chosen.limit_s is not None else 2.0 if chosen.quick else 12.0
    return chosen


ALLOCATORS = "kept: freed memory stays with the process, so that page faults do not hide kernels; default: the C library's way"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""Eager's kernels and Inductor's, the two libraries', and ours. The floors were measured on a processor without AVX-512."""
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000000", "MALLOC_TOP_PAD_": str(64 << 20)}


class Suite:
    """One result file: the cases at one thread count."""

    def __init__(self, chosen: argparse.Namespace, threads: int) -> None:
        self.chosen, self.threads = chosen, threads
        kind = "regions-quick" if chosen.quick else "regions"
        level = "" if chosen.level == "native" else f"-{chosen.level}"
        self.path: Path = chosen.out / f"{kind}-{threads}t{level}-{harness.device_name()}.json"
        continued = (chosen.resume or chosen.recheck or chosen.aa) and self.path.exists()
        self.data: dict[str, Any] = json.loads(self.path.read_text()) if continued else {"cases": {}}
        kept = self.data.get("settings", {}).get("cache_dir")
        self.cache_dir = chosen.cache_dir or kept or tempfile.mkdtemp(prefix="accelopt-regions-")

    @property
    def cases(self) -> dict[str, Any]:
        found: dict[str, Any] = self.data["cases"]
        return found

    def job(self, task: str, **more: Any) -> dict[str, Any]:
        about = {"task": task, "threads": self.threads, "cache_dir": self.cache_dir, "log": self.chosen.log}
        return {**about, "budget_s": self.chosen.budget_s, "limit_s": self.chosen.limit_s, "mode": "tune", **more}

    def environment(self) -> dict[str, str]:
        """Of the processes that measure. The compile cache lies beside the store: a fresh store is a fresh start."""
        compiled = {"TORCHINDUCTOR_CACHE_DIR": str(Path(self.cache_dir) / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        kept = KEPT if self.chosen.allocator == "kept" else {}
        lowered = AVX2 if self.chosen.level == "avx2" else {}
        return {"OMP_NUM_THREADS": str(self.threads), "ACCELOPT_CACHE_DIR": self.cache_dir, **compiled, **kept, **lowered}

    def write(self) -> None:
        chosen = {name: getattr(self.chosen, name) for name in ("allocator", "level")}
        around = {**harness.environment(), "threads": self.threads, **chosen}
        settings = {"budget_s": self.chosen.budget_s, "limit_s": self.chosen.limit_s, "cache_dir": self.cache_dir}
        self.data |= {"format": harness.FORMAT, "benchmark": "regions", "quick": self.chosen.quick, "environment": around}
        self.data |= {"settings": settings, "summary": region_report.summary(self.cases, family_bounds())}
        harness.write_whole(self.path, self.data)

    # ------------------------------------------------------------ what can be asked of it

    def measure(self, keys: Sequence[str]) -> None:
        todo = [key for key in keys if not (self.chosen.resume and "ratio" in self.cases.get(key, {}))]
        patience = 2 * self.chosen.budget_s + self.chosen.limit_s + 300
        commit = harness.environment()["commit"]
        for result in stream(self.job("measure"), todo, self.environment(), patience):
            self.cases[result["case"]] = {**result, "commit": commit}
            print(region_report.case_line(result["case"], result), flush=True)
            self.write()

    def recheck(self, keys: Sequence[str]) -> None:
        """Adopted kernels in a process that did not search for them, one process a case."""
        for key in keys:
            if not self.cases.get(key, {}).get("adopted"):
                continue
            for result in stream(self.job("measure", mode="apply"), [key], self.environment(), self.chosen.limit_s + 300):
                kept = ("ratio", "low", "high", "baseline", "adopted", "load_1min", "failed", "died")
                self.cases[key]["recheck"] = {name: result[name] for name in kept if name in result}
                print(region_report.case_line(key, result), flush=True)
                self.write()

    def same_twice(self, keys: Sequence[str]) -> dict[str, Any]:
        trials = []
        each = -(-self.chosen.aa // max(1, len(keys)))
        for result in stream(self.job("aa", trials=each), keys, self.environment(), each * (self.chosen.limit_s + 5) + 300):
            trials += [trial | {"case": result["case"]} for trial in result.get("trials", [])]
        self.data["aa"] = region_report.false_wins(trials) | {"samples": trials}
        self.write()
        return region_report.false_wins(trials)

    def survey(self, keys: Sequence[str]) -> dict[str, Any]:
        from benchmarks.region_survey import lines

        found = []
        for result in stream(self.job("survey"), keys, self.environment(), 900):
            found.append(result)
            print("\n".join(lines(result)), flush=True)
        path = self.path.with_name(self.path.name.replace("regions", "regions-survey", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"environment": harness.environment(), "cases": found}, indent=1) + "\n")
        rows = [row for result in found for row in result.get("regions", [])]
        counted = {kind: sum(kind in row for row in rows) for kind in ("speedup", "rejected", "unsupported", "failed")}
        return {"cases": len(found), "regions": len(rows), **counted, "results": str(path)}


def family_bounds() -> Mapping[str, Any]:
    from benchmarks.region_cases import FAMILIES

    return {name: {"floor": dict(f.floor), "goal": dict(f.goal)} for name, f in FAMILIES.items()}


def chosen_keys(chosen: argparse.Namespace) -> list[str]:
    from benchmarks.region_cases import cases

    wanted = [c for c in cases() if (c.quick or not chosen.quick) and chosen.dtype in (None, c.dtype)]
    return [c.key for c in wanted if re.search(chosen.only, c.key)]


def main() -> None:
    chosen = arguments_of()
    keys = chosen_keys(chosen)
    found: dict[str, Any] = {}
    interrupted = False
    for threads in chosen.threads:
        suite = Suite(chosen, threads)
        try:
            if chosen.survey:
                found[f"{threads}t"] = suite.survey(keys)
                continue
            if chosen.aa:
                found[f"{threads}t"] = suite.same_twice([k for k in keys if k in quick_keys()] or keys[:4])
                continue
            suite.recheck(keys) if chosen.recheck else suite.measure(keys)
        except KeyboardInterrupt:
            interrupted = True
        if suite.cases:
            suite.write()
            print("\n".join(region_report.lines(suite.data["summary"])), flush=True)
            short = {k: v for k, v in suite.data["summary"].items() if k != "families"}
            found[f"{threads}t"] = {**short, "results": str(suite.path), "cache_dir": suite.cache_dir}
        if interrupted:
            break
    harness.finish("regions", found)
    sys.exit(130 if interrupted else 0)


def quick_keys() -> Sequence[str]:
    from benchmarks.region_cases import QUICK

    return QUICK


if __name__ == "__main__":
    main()

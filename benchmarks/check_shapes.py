"""Right values at any shape: forward, loss and gradients of every model against float64, Inductor's errors beside ours.

Per model and precision one fresh process searches at two choices of sizes (`mode="tune"`), then one each for dynamic and
static sizes runs random shapes under Inductor and under accelopt with `mode="apply"`: the output alone without gradients,
then output, loss and every parameter's gradient. A tensor that `shape_errors` calls wrong, more graphs than Inductor
compiles, a kernel that fell back, or a variant in which no kernel of ours ran is a failure. Speed is not looked at.

    python -m benchmarks.check_shapes --quick
    python -m benchmarks.check_shapes --only bert,t5 --precisions bf16 --sizes dynamic
    python -m benchmarks.check_shapes --resume    # what this device's file lacks; a full run takes hours
    python -m benchmarks.check_shapes --seeds    # unproven kernels in every region: looks for faults of the generator
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import harness, shape_report
from benchmarks.shape_report import KINDS
from benchmarks.workloads import NAMES

GRAPHS = 512
"""Dynamo's limit on recompilations, for both: with static sizes each shape is a graph of its own."""


def tune(case: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Child: fill the store, at small static and at larger dynamic sizes, so that regions are seen both ways."""
    from accelopt_compile import api
    from benchmarks.shape_calls import compiled_calls

    options = {"mode": "tune", "budget_s": arguments.budget_s, "log": "quiet", "min_speedup": arguments.min_speedup}
    started = time.perf_counter()
    for training in [kind == "training" for kind in arguments.kinds.split(",")]:
        for share, dynamic in ((0.3, True), (0.4, False)):
            compile_arguments = {"backend": "accelopt", "dynamic": dynamic, "options": options}
            compiled_calls(case, compile_arguments, [case.middle(share)], precision=arguments.precision, training=training)
    return {"tune_s": time.perf_counter() - started, "regions": api.stats()["regions"], "problems": api.stats()["problems"]}


def check(case: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Child: errors, graphs and launches of one model in one precision, with static or dynamic sizes."""
    import torch

    from accelopt_compile import api
    from benchmarks.shape_calls import compiled_calls, references
    from benchmarks.shape_errors import errors, worst

    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = GRAPHS
    # Inductor alone fails with it (torch 2.13): a convolution's backward for images of 36 was served for 35, strides and all.
    torch._functorch.config.enable_autograd_cache = False
    shapes = case.draw(arguments.shapes)
    dynamic = arguments.sizes == "dynamic"
    ours = {"mode": "apply", "log": "quiet", "min_speedup": arguments.min_speedup}
    if arguments.seeds:
        from benchmarks.shape_seeds import seeding_backend

        accelopt: dict[str, Any] = {"backend": seeding_backend(ours)}
    else:
        accelopt = {"backend": "accelopt", "options": ours}
    found: dict[str, Any] = {"shapes": len(shapes)}
    for kind in arguments.kinds.split(","):
        training = kind == "training"
        how: dict[str, Any] = {"precision": arguments.precision, "training": training}
        wanted = references(case, shapes, **how)
        theirs, their_graphs = compiled_calls(case, {"backend": "inductor", "dynamic": dynamic}, shapes, **how)
        before = api.stats()
        mine, my_graphs = compiled_calls(case, {**accelopt, "dynamic": dynamic}, shapes, **how)
        after = api.stats()
        my_errors, their_errors = ([errors(f, w) for f, w in zip(each, wanted, strict=True)] for each in (mine, theirs))
        usual = {name: worst(e[name] for e in their_errors if name in e) for each in their_errors for name in each}
        judged = [
            judge(m, t, sizes, arguments.precision, usual) for m, t, sizes in zip(my_errors, their_errors, shapes, strict=True)
        ]
        found[kind] = {
            "graphs": {"accelopt": my_graphs, "inductor": their_graphs},
            "calls": after["calls"] - before["calls"],
            "fallbacks": after["fallbacks"] - before["fallbacks"],
            "problems": [
                *after["problems"][len(before["problems"]) :],
                *(k["problem"] for k in after["kernels"].values() if k["problem"]),
            ],
            "regions": {k: n - before["regions"].get(k, 0) for k, n in after["regions"].items()},
            "tensors": sum(len(w) for w in wanted),
            "wrong": [one for each in judged for one in each],
            "worst": {
                side: asdict(worst(e for each in found_errors for e in each.values()))
                for side, found_errors in (("accelopt", my_errors), ("inductor", their_errors))
            },
        }
    return found


def judge(
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    sizes: Mapping[str, int],
    precision: str,
    usual: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The wrong tensors of one shape. `usual` are Inductor's worst errors of all shapes."""
    wrong = []
    for name, error in mine.items():
        theirs_here = usual[name] if usual and error.vanishes else theirs[name]
        if not error.within(theirs_here, precision):
            both = {"accelopt": asdict(error), "inductor": asdict(theirs_here)}
            wrong.append({"sizes": dict(sizes), "tensor": name, **both})
    return wrong


def child(arguments: argparse.Namespace) -> None:
    from benchmarks.shape_cases import CASES

    case = CASES[arguments.model]
    found = tune(case, arguments) if arguments.child == "tune" else check(case, arguments)
    harness.finish("shapes.child", found)


def run_model(model: str, precision: str, sizes: Sequence[str], arguments: argparse.Namespace, scratch: str) -> dict[str, Any]:
    """The search, then each kind of sizes, recorded as they end; a process that fails is a result too."""
    store = os.path.join(arguments.store or os.path.join(scratch, "store"), model, precision)
    environment = {"ACCELOPT_CACHE_DIR": store, "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor")}
    shared = ["--model", model, "--precision", precision, "--budget-s", str(arguments.budget_s)]
    shared += ["--min-speedup", str(arguments.min_speedup), "--shapes", str(arguments.shapes), "--kinds", arguments.kinds]
    shared += ["--seeds"] if arguments.seeds else []
    found: dict[str, Any] = {}
    for stage in (*([] if arguments.seeds or arguments.no_tune else ["tune"]), *sizes):
        what = ["--child", "tune"] if stage == "tune" else ["--child", "check", "--sizes", stage]
        variant, started = f"{model} {precision} {stage}", time.perf_counter()
        try:
            answer = harness.run_fresh("benchmarks.check_shapes", *what, *shared, env=environment, timeout_s=7200.0)
        except RuntimeError as failure:
            print(f"{variant}: {failure}", file=sys.stderr)
            answer = {"failed": str(failure)[-2000:]}
        answer.pop("benchmark", None)
        answer["seconds"] = round(time.perf_counter() - started, 1)
        print(shape_report.line(variant, answer), flush=True)
        if stage != "tune":
            shape_report.record(path_of(arguments), variant, answer)
            found[variant] = answer
    return found


def path_of(arguments: argparse.Namespace) -> Path:
    """Where results are kept. What is no full check is kept apart from those that are."""
    full = not arguments.quick and set(arguments.kinds.split(",")) == set(KINDS)
    return shape_report.path_of("shapes-seeds" if arguments.seeds else "shapes" if full else "shapes-quick")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, three shapes")
    parser.add_argument("--only", help="comma-separated models")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--sizes", default="dynamic,static")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--shapes", type=int, help="random shapes of each variant (default: 20; 3 with --quick)")
    parser.add_argument("--budget-s", type=float, default=15.0, help="seconds of search for each graph")
    parser.add_argument("--min-speedup", type=float, default=1.0, help="1: any kernel that is not slower is launched")
    parser.add_argument("--store", help="keep kernels in this directory; --no-tune then takes what is there")
    parser.add_argument("--resume", action="store_true", help="skip the variants that this device's file has already")
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--seeds", action="store_true", help="instead of searching launch the unproven seed of every region")
    for name in ("child", "model", "precision"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.shapes = arguments.shapes or (3 if arguments.quick else 20)
    if arguments.child:
        child(arguments)
        return
    from benchmarks.shape_cases import CASES

    models = (arguments.only or ("llama_train,cnn" if arguments.quick else ",".join(NAMES))).split(",")
    if set(models) - set(NAMES):
        parser.error(f"no such model: {', '.join(sorted(set(models) - set(NAMES)))}; there are: {', '.join(NAMES)}")
    path = path_of(arguments)
    there = shape_report.known(path, harness.environment()) if arguments.resume else {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="accelopt-shapes-") as scratch:
        for model in models:
            for precision in [p for p in arguments.precisions.split(",") if p in CASES[model].precisions]:
                variants = {sizes: there.get(f"{model} {precision} {sizes}") for sizes in arguments.sizes.split(",")}
                lacking = [sizes for sizes, one in variants.items() if not shape_report.is_shown(one, arguments.shapes)]
                found |= run_model(model, precision, lacking, arguments, scratch) if lacking else {}
    if not found and not there:
        parser.error(f"none of {', '.join(models)} is run with {arguments.precisions}")
    failed = {variant: why for variant, one in found.items() if (why := shape_report.failures(one))}
    harness.finish("shapes", {"variants": len(found), "failed": failed, "results": str(path)})
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

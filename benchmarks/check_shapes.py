"""Right values at any shape: forward, loss and gradients of every model against float64, Inductor's errors beside ours.

Per model and precision one fresh process searches at two choices of sizes (`mode="tune"`), then one each for dynamic and
static sizes runs random shapes under Inductor and under accelopt with `mode="apply"`: the output alone without gradients,
then output, loss and every parameter's gradient. A tensor that `shape_errors` calls wrong, more graphs than Inductor
compiles, a kernel that fell back, or a variant in which no kernel of ours ran is a failure. Speed is not looked at.

    python -m benchmarks.check_shapes --quick
    python -m benchmarks.check_shapes --only bert,t5 --precisions bf16 --sizes dynamic
    python -m benchmarks.check_shapes --seeds    # unproven kernels in every region: looks for faults of the generator
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import harness
from benchmarks.workloads import NAMES

GRAPHS = 512
"""Dynamo's limit on recompilations, for both: with static sizes each shape is a graph of its own."""

KINDS = ("inference", "training")


def compiled_calls(
    case: Any, arguments: Mapping[str, Any], shapes: Sequence[Mapping[str, int]], *, precision: str, training: bool
) -> tuple[list[dict[str, Any]], int]:
    """What a compiled model computes at each shape, and how many graphs Dynamo made for that."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    module = case.model(training=training)
    compiled = torch.compile(module, **arguments)
    results = []
    for number, sizes in enumerate(shapes):
        inputs = inputs_of(case, sizes, number, precision)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            results.append(one_call(module, compiled, inputs, training=training))
    return results, counters["stats"]["unique_graphs"]


def one_call(module: Any, function: Any, inputs: Sequence[Any], *, training: bool) -> dict[str, Any]:
    """{"output", "loss", "grad.<parameter>", "written.<input>"}: everything that a call computes, by name."""
    import torch

    given = [t.clone() for t in inputs]
    with torch.set_grad_enabled(training):
        answer = function(*given)
    if not training:
        written = {f"written.{i}": new for i, (t, new) in enumerate(zip(inputs, given, strict=True)) if t.is_floating_point()}
        return {"output": answer, **written}
    output, loss = answer
    module.zero_grad()
    with torch.autocast("cpu", enabled=False):
        loss.backward()
    gradients = {f"grad.{name}": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    return {"output": output.detach(), "loss": loss.detach(), **gradients}


def inputs_of(case: Any, sizes: Mapping[str, int], number: int, precision: str) -> tuple[Any, ...]:
    """The inputs of a shape, equal for all variants."""
    import torch

    inputs: tuple[Any, ...] = case.inputs(sizes, torch.Generator().manual_seed(number))
    return inputs if precision == "fp32" else case.under_autocast(inputs)


def references(case: Any, shapes: Sequence[Mapping[str, int]], *, precision: str, training: bool) -> list[dict[str, Any]]:
    """The same in float64, without autocast."""
    import torch

    from benchmarks.shape_errors import Exact

    module = copy.deepcopy(case.model(training=training)).double()
    results = []
    for number, sizes in enumerate(shapes):
        inputs = inputs_of(case, sizes, number, precision)
        with Exact():
            results.append(
                one_call(module, module, [t.to(torch.float64) if t.is_floating_point() else t for t in inputs], training=training)
            )
    return results


def tune(case: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Child: fill the store, at small static and at larger dynamic sizes, so that regions are seen both ways."""
    from accelopt_compile import api

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
    found: dict[str, Any] = {"shapes": shapes}
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
            "wrong": [one for each in judged for one in each["wrong"]],
            "shapes": [each["worst"] for each in judged],
        }
    return found


def judge(
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    sizes: Mapping[str, int],
    precision: str,
    usual: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The wrong tensors of one shape, and the worst errors of both. `usual` are Inductor's worst errors of all shapes."""
    from benchmarks.shape_errors import worst

    wrong = []
    for name, error in mine.items():
        theirs_here = usual[name] if usual and error.vanishes else theirs[name]
        if not error.within(theirs_here, precision):
            both = {"accelopt": asdict(error), "inductor": asdict(theirs_here)}
            wrong.append({"sizes": dict(sizes), "tensor": name, **both})
    of_both = {"accelopt": asdict(worst(mine.values())), "inductor": asdict(worst(theirs.values()))}
    return {"wrong": wrong, "worst": of_both}


def child(arguments: argparse.Namespace) -> None:
    from benchmarks.shape_cases import CASES

    case = CASES[arguments.model]
    found = tune(case, arguments) if arguments.child == "tune" else check(case, arguments)
    harness.finish("shapes.child", found)


def one_model(model: str, precision: str, arguments: argparse.Namespace, scratch: str) -> dict[str, Any]:
    """The search, then both kinds of sizes; a process that fails is a result too."""
    store = os.path.join(arguments.store or os.path.join(scratch, "store"), model, precision)
    environment = {"ACCELOPT_CACHE_DIR": store, "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor")}
    shared = ["--model", model, "--precision", precision, "--budget-s", str(arguments.budget_s)]
    shared += ["--min-speedup", str(arguments.min_speedup), "--shapes", str(arguments.shapes), "--kinds", arguments.kinds]
    shared += ["--seeds"] if arguments.seeds else []
    found: dict[str, Any] = {}
    stages = [] if arguments.seeds or arguments.no_tune else ["tune"]
    for stage in (*stages, *arguments.sizes.split(",")):
        what = ["--child", "tune"] if stage == "tune" else ["--child", "check", "--sizes", stage]
        started = time.perf_counter()
        try:
            answer = harness.run_fresh("benchmarks.check_shapes", *what, *shared, env=environment, timeout_s=7200.0)
        except RuntimeError as failure:
            print(f"{model}: {failure}", file=sys.stderr)
            answer = {"failed": str(failure)[-2000:]}
        answer.pop("benchmark", None)
        found[stage] = answer | {"seconds": round(time.perf_counter() - started, 1)}
        print(line(model, precision, stage, found[stage]), flush=True)
    return found


def line(model: str, precision: str, stage: str, found: Mapping[str, Any]) -> str:
    head = f"{model:18}{precision:6}{stage:8}{found['seconds']:6.0f} s  "
    if "failed" in found or stage == "tune":
        return head + ("FAILED" if "failed" in found else f"{found['regions']}")
    parts = []
    for kind in KINDS:
        if kind not in found:
            continue
        one = found[kind]
        worst = {v: max(s[v]["l2"] for s in one["shapes"]) for v in ("accelopt", "inductor")}
        parts.append(
            f"{kind}: {len(one['wrong'])} wrong of {one['tensors']}, error {worst['accelopt']:.1e} (Inductor "
            f"{worst['inductor']:.1e}), graphs {one['graphs']['accelopt']} ({one['graphs']['inductor']}), {one['calls']} calls"
            + (f", {one['fallbacks']} fallbacks" if one["fallbacks"] else "")
        )
    return head + "; ".join(parts)


def failures(found: Mapping[str, Any]) -> list[str]:
    """What is not as it must be in the result of one variant."""
    if "failed" in found:
        return ["the process failed"]
    kinds = {kind: found[kind] for kind in KINDS if kind in found}
    why = [f"{kind}: {len(k['wrong'])} wrong tensors" for kind, k in kinds.items() if k["wrong"]]
    why += [f"{k}: more graphs than Inductor" for k, o in kinds.items() if o["graphs"]["accelopt"] > o["graphs"]["inductor"]]
    why += [f"{kind}: {k['fallbacks']} fallbacks" for kind, k in kinds.items() if k["fallbacks"]]
    why += [f"{kind}: {problem}" for kind, k in kinds.items() for problem in k["problems"]]
    return why if any(k["calls"] for k in kinds.values()) else [*why, "no kernel was launched"]


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
    name = "shapes-seeds" if arguments.seeds else "shapes"
    found: dict[str, Any] = {}
    path = None
    with tempfile.TemporaryDirectory(prefix="accelopt-shapes-") as scratch:
        for model in models:
            for precision in [p for p in arguments.precisions.split(",") if p in CASES[model].precisions]:
                found.setdefault(model, {})[precision] = one_model(model, precision, arguments, scratch)
                # After each: a full run takes hours.
                path = harness.write_result(name, {"models": found}, quick=arguments.quick)
    if path is None:
        parser.error(f"none of {', '.join(models)} is run with {arguments.precisions}")
    checked = {
        f"{model} {precision} {stage}": failures(one)
        for model, precisions in found.items()
        for precision, stages in precisions.items()
        for stage, one in stages.items()
        if stage != "tune"
    }
    failed = {name: why for name, why in checked.items() if why}
    harness.finish("shapes", {"variants": len(checked), "failed": failed, "results": str(path)})
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Mode "apply": stored kernels are put into real models, and results stay what eager gives."""

from __future__ import annotations

import copy
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import planting
import pytest
import torch
from planting import Norm
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import accelopt_compile
from accelopt_backends.base import Refusal
from accelopt_backends.cpp import CppBackend
from accelopt_compile import deciding
from accelopt_compile.launch import kernels
from accelopt_compile.records import KernelSource, Workload


def apply(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="accelopt", options={"mode": "apply", **options})


def calls() -> tuple[int, int]:
    """(kernel calls, fallbacks) of this process."""
    stats = accelopt_compile.stats()
    return stats["calls"], stats["fallbacks"]


def test_is_registered() -> None:
    """`backend="accelopt"` is found through the entry point."""
    assert "accelopt" in torch._dynamo.list_backends(exclude_tags=())


def test_hits_replace_regions() -> None:
    """A stored kernel runs in the compiled model, and the result is eager's."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x)
        torch.testing.assert_close(model(x), apply(model)(x))
    made, fell_back = calls()
    assert made >= 1
    assert 0 == fell_back
    assert counters["accelopt"]["hit"] >= 1


IN_32_BITS = pytest.mark.skipif(CppBackend.products.widest < 4, reason="on Intel's processors they are left to the library")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, pytest.param(torch.float32, marks=IN_32_BITS)])
def test_matrix_products_of_one_row_are_served(dtype: torch.dtype) -> None:
    """Those of a step that generates one token; of a prompt's many rows they stay Inductor's."""
    model, x = Norm().eval().to(dtype), torch.randn(1, 64).to(dtype)
    with torch.no_grad():
        planted = planting.plant(model, x)
        assert [2] == [site.count for site in planted if any("mm" in node.op for node in site.workload.nodes)]
        rounding = {"atol": 0.02, "rtol": 0.02}
        torch.testing.assert_close(model(x), apply(model)(x), **rounding)
        assert (sum(site.count for site in planted), 0) == calls()
        many = torch.randn(33, 64).to(dtype)
        torch.testing.assert_close(model(many), apply(model)(many), **rounding)
    (*_, last) = accelopt_compile.explain(structured=True)
    assert not any("mm" in region["operators"] for region in last["regions"])


def test_what_takes_longer_to_prove_than_there_is_time_is_not_searched() -> None:
    """A last layer, of which no size is free: its search would end long after the budget."""
    layer, x = torch.nn.Linear(576, 20000, bias=False).bfloat16(), torch.randn(1, 576).bfloat16()
    with torch.no_grad():
        compiled = torch.compile(layer, backend="accelopt", options={"mode": "tune", "budget_s": 10})
        torch.testing.assert_close(layer(x), compiled(x))
    assert re.search(r"MISS \(to prove a kernel here takes about 15 s, more than the budget has left", accelopt_compile.explain())


def test_a_stored_graph_is_not_that_of_another_precision() -> None:
    """A kernel that heeds the precision of products is of another signature then; the report does not say that it runs."""
    model, x = Norm().eval().bfloat16(), torch.randn(1, 64).bfloat16()
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            planting.plant(model, x)
            outcomes = []
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                torch._dynamo.reset()
                apply(model)(x)
                (*_, graph) = accelopt_compile.explain(structured=True)
                outcomes.append({r["outcome"] for r in graph["regions"] if "mm" in r["operators"]})
    finally:
        torch.set_float32_matmul_precision(before)
    assert [{"HIT"}, {"MISS"}] == outcomes


def test_miss_leaves_the_region_to_inductor() -> None:
    """Without a stored kernel everything runs in Inductor, and the report says MISS."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), apply(model)(x))
    assert (0, 0) == calls()
    assert "MISS (mode is apply)" in accelopt_compile.explain()


class Faulty(CppBackend):
    """A backend with a bug: it raises where a workload takes a softmax apart."""

    def supports(self, workload: Workload) -> str | None:
        if any(node.op.startswith("aten.amax") for node in workload.nodes):
            raise KeyError("x9")
        return super().supports(workload)


def test_a_region_that_a_backend_stumbles_over_is_a_miss_of_its_own() -> None:
    """The other regions keep their kernels, and the report says what happened."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x, -1) @ Norm(8)(x)

    with torch.no_grad():
        sites = planting.sites_seen(model, torch.randn(8, 8))
    place = planting.bench(mode="apply")
    planting.plant_sites(place, [s for s in sites if "amax" not in str(s.workload)])
    decided = deciding.decide(sites, replace(place, backend=Faulty()))
    outcomes = {report.outcome: report.reason for report in decided.reports}
    assert {"HIT", "MISS"} == set(outcomes)
    assert "cpp: a fault in the backend: KeyError: 'x9'" == outcomes["MISS"]


def test_training() -> None:
    """Forward and backward regions are served; loss and every gradient are eager's."""
    model, x = Norm(), torch.randn(6, 64, requires_grad=True)
    planting.plant(model, x)
    expected = model(x).square().sum()
    wanted = torch.autograd.grad(expected, [x, *model.parameters()])
    actual = apply(model)(x).square().sum()
    got = torch.autograd.grad(actual, [x, *model.parameters()])
    torch.testing.assert_close(expected, actual)
    torch.testing.assert_close(wanted, got)
    assert calls()[0] >= 2
    assert 0 == calls()[1]


def test_dynamic_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One compilation with symbolic sizes serves every size, kernels included, and an empty batch too."""
    monkeypatch.setenv("ACCELOPT_MODE", "apply")
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x, dynamic=True)
        counter = CompileCounterWithBackend("accelopt")
        compiled = torch.compile(model, backend=counter, dynamic=True)
        for rows in (6, 3, 17, 0):
            batch = torch.randn(rows, 64)
            torch.testing.assert_close(model(batch), compiled(batch))
    assert 2 >= counter.frame_count  # an empty batch is a graph of its own, as with Inductor
    assert calls()[0] >= 3


def test_no_more_recompilations_than_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a series of shapes we compile as many graphs as Inductor does."""
    monkeypatch.setenv("ACCELOPT_MODE", "apply")
    frames = {}
    for backend in ("inductor", "accelopt"):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend(backend)
        model = torch.compile(Norm().eval(), backend=counter)
        with torch.no_grad():
            for shape in ((2, 64), (5, 64), (1, 64), (4, 2, 64)):
                model(torch.randn(shape))
        frames[backend] = counter.frame_count
    assert frames["inductor"] == frames["accelopt"]


@pytest.mark.parametrize("laid_out", [torch.contiguous_format, torch.channels_last], ids=["channels first", "channels last"])
def test_a_region_behind_a_convolution(laid_out: torch.memory_format) -> None:
    """Inductor lays the convolution out channels last: a region that wants its tensor otherwise is left to it, since the copies
    that would turn it cost more than a kernel saves; one that has it so gets a kernel."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.GELU()).eval()
    model, x = model.to(memory_format=laid_out), torch.randn(2, 3, 12, 12).to(memory_format=laid_out)
    with torch.no_grad():
        sites = planting.sites_seen(model, x)
        assert [laid_out == torch.channels_last] == [bool(sites)]
        planting.plant_sites(planting.bench(), sites)
        torch.testing.assert_close(model(x), apply(model)(x), rtol=1e-4, atol=1e-5)
    assert (len(sites), 0) == calls()


def test_a_region_behind_a_convolution_and_a_view_gets_declared_strides() -> None:
    """Inductor lays the convolution out channels last; the kernel reads its tensor as it was captured."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Flatten(2), torch.nn.GELU()).eval()
    x = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        planting.plant(model, x)
        torch.testing.assert_close(model(x), apply(model)(x), rtol=1e-4, atol=1e-5)
    assert 0 == calls()[1] < calls()[0]


def test_a_missing_compiler_is_said_with_its_remedy_once() -> None:
    """Inductor, which needs one too, says so of itself."""
    program = "from accelopt_compile.choosing import chosen; from accelopt_compile.config import settings_from; "
    program += "chosen(settings_from({'backend': 'cpp'}), 'cpu')"
    environment = {**{k: v for k, v in os.environ.items() if k not in ("CXX", "PATH")}, "PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "no C++20 compiler with OpenMP" in done.stderr
    assert 1 == done.stderr.splitlines()[-1].count("install g++ 11 or newer")


def test_what_is_compiled_to_be_saved_has_no_kernel() -> None:
    """The process that loads it never heard of us, and adopted none: Inductor alone compiles it."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x)
        with torch._functorch.config.patch(bundled_autograd_cache=True):
            torch.testing.assert_close(model(x), apply(model)(x))
    assert (0, 0) == calls()


def test_declining_kernel_falls_back() -> None:
    """A kernel that declines costs a warning, never the result."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x, source=planting.broken)
        compiled = apply(model)
        with pytest.warns(kernels.KernelFellBack):
            actual = compiled(x)
        torch.testing.assert_close(model(x), actual)
    assert calls()[1] >= 1


class Strict(CppBackend):
    """A backend whose screen refuses everything."""

    def screen(self, source: KernelSource) -> Sequence[Refusal]:
        return [Refusal(line=1, reason="no", hint="none")]


def reading_a_clock(seed: KernelSource) -> KernelSource:
    """As a newer version may write kernels: with a builtin that this version's screen does not know."""
    return replace(seed, text=seed.text + "\nstatic inline long now() { return __builtin_ia32_rdtsc(); }\n")


def test_a_refused_kernel_does_not_hide_the_others() -> None:
    """A store that two versions share: the other's faster kernel is passed by, and nothing is searched again."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        (site,) = planting.plant(model, x)
        faster = replace(planting.TIMING, kernel_us=5.0, speedup=4.0, low=3.9, high=4.1)
        planting.plant(model, x, source=reading_a_clock, timing=faster)
        (report,) = deciding.decide([site], planting.bench(mode="apply")).reports
    assert ("HIT", planting.TIMING.speedup) == (report.outcome, report.speedup)


def test_what_this_machine_built_is_not_screened_at_each_start() -> None:
    """A stored source that the screen refuses is no hit; one with a built file passed before that was built."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        sites = planting.plant(model, x)
        place = replace(planting.bench(mode="apply"), backend=Strict())
        assert ["MISS"] == [report.outcome for report in deciding.decide(sites, place).reports]
        torch.testing.assert_close(model(x), apply(model)(x))
        assert ["HIT"] == [report.outcome for report in deciding.decide(sites, place).reports]


def test_other_environment_is_a_miss() -> None:
    """A kernel proven with another compiler is not launched unproven."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x, environment={"compiler": "somebody else's 1.0"})
        torch.testing.assert_close(model(x), apply(model)(x))
    assert (0, 0) == calls()


def test_mode_off_is_inductor() -> None:
    """Mode "off" neither looks up nor records anything."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x)
        torch.testing.assert_close(model(x), apply(model, mode="off")(x))
    assert (0, 0) == calls()
    assert 0 == accelopt_compile.stats()["graphs"]


def test_inductor_modes_and_options_reach_inductor() -> None:
    """`torch.compile(mode=)` strings are Inductor's; an option it does not know is its error."""
    x = torch.randn(4, 64)
    with torch.no_grad():
        model = Norm().eval()
        compiled = torch.compile(model, backend="accelopt", mode="max-autotune-no-cudagraphs")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ACCELOPT_MODE", "apply")
            torch.testing.assert_close(model(x), compiled(x), rtol=1e-4, atol=1e-5)
        with pytest.raises(Exception, match="Unexpected optimization option maxautotune"):
            apply(Norm(), inductor={"maxautotune": True})(x)


def test_unknown_option_is_an_error() -> None:
    """A misspelt option fails the compilation with the right name."""
    with pytest.raises(Exception, match="did you mean 'budget_s'"):
        torch.compile(Norm(), backend="accelopt", options={"budgets": 3})(torch.randn(4, 64))


def test_users_own_pass_still_runs() -> None:
    """A pass that the user gave Inductor runs beside ours."""
    from torch._inductor import config

    seen: list[int] = []
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad(), config.patch(post_grad_custom_pre_pass=lambda graph: seen.append(len(graph.nodes))):
        planting.plant(model, x)
        seen.clear()
        torch.testing.assert_close(model(x), apply(model)(x))
    assert seen
    assert calls()[0] >= 1


def test_copy_and_state_of_a_compiled_module() -> None:
    """A compiled module is copied and saved as with Inductor."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x)
        compiled = apply(model)
        expected = compiled(x)
        twin = copy.deepcopy(compiled)
        torch.testing.assert_close(expected, twin(x))
        saved = io.BytesIO()
        torch.save(compiled.state_dict(), saved)
        saved.seek(0)
        other = apply(Norm().eval())
        other.load_state_dict(torch.load(saved))
        torch.testing.assert_close(expected, other(x))


def test_one_line_a_region(caplog: pytest.LogCaptureFixture) -> None:
    """Every region has one INFO line with its outcome and speedup."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad(), caplog.at_level(logging.INFO, logger="accelopt_compile"):
        planted = planting.plant(model, x)
        caplog.clear()
        apply(model)(x)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("region ")]
    assert len(planted) == sum("HIT 2.00x" in line for line in lines)


def test_unreadable_store_is_inductor(tmp_path: Any) -> None:
    """A cache directory that is a file costs a warning, never the program."""
    (tmp_path / "file").write_text("not a directory")
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), apply(model, cache_dir=str(tmp_path / "file"))(x))


WITHOUT_COMPILER = """
import logging, torch, accelopt_compile
logging.basicConfig(level=logging.WARNING)
model, x = torch.nn.Linear(64, 64).eval(), torch.randn(6, 64)  # Inductor needs no compiler for a matrix product
with torch.no_grad():
    torch.testing.assert_close(model(x), torch.compile(model, backend="accelopt", options={"mode": "apply"})(x))
print(accelopt_compile.stats()["problems"])
"""


def test_failure_in_our_layer_is_inductor(tmp_path: Path) -> None:
    """Where no backend of ours works, the user gets Inductor, and one warning that says how to get a compiler."""
    env = {**os.environ, "PATH": str(tmp_path), "CXX": "/nonexistent/compiler"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    assert "ToolchainMissing" in done.stdout
    assert 1 == done.stderr.count("Inductor compiles alone")
    assert "install" in done.stderr


def test_kernels_that_do_not_compile_in_give_inductor(caplog: pytest.LogCaptureFixture) -> None:
    """Where Inductor cannot compile the graph with our kernels in it, it compiles an untouched copy, with one warning."""
    from torch._inductor import config

    def damage(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if "accelopt" in str(node.target):
                node.args = (*node.args[:-1], "no such kernel")

    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad(), config.patch(post_grad_custom_post_pass=damage):
        planting.plant(model, x)
        torch.testing.assert_close(model(x), apply(model)(x))
    assert "while compiling with kernels" in caplog.text
    assert (0, 0) == calls()


@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_that_do_not_compile_into_a_backward_give_inductor(dynamic: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It may be compiled when it is first asked for, where the failure would be the program's."""
    from torch._inductor import config

    def damage(graph: torch.fx.Graph) -> None:
        if any("tangents" in node.name for node in graph.nodes):
            for node in graph.nodes:
                if "accelopt" in str(node.target):
                    node.args = (*node.args[:-1], "no such kernel")

    model, x = Norm(), torch.randn(6, 64)
    planting.plant(model, x, dynamic=dynamic)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with config.patch(post_grad_custom_post_pass=damage):
        compiled: Any = torch.compile(model, backend="accelopt", options={"mode": "apply"}, dynamic=dynamic)
        compiled(x).sum().backward()
    torch.testing.assert_close(expected, [p.grad for p in model.parameters()])
    assert "while compiling with kernels" in caplog.text
    assert calls()[0] > 0  # those of the forward


def test_inductors_own_failure_is_inductors() -> None:
    """What Inductor cannot compile fails with Inductor's message, not with one of ours."""
    from torch._inductor import config

    def explode(graph: torch.fx.Graph) -> None:
        raise ZeroDivisionError("the user's own pass")

    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        planting.plant(model, x)
        with config.patch(post_grad_custom_post_pass=explode), pytest.raises(Exception, match="the user's own pass"):
            apply(model)(x)


def test_eager_fallback_without_a_hit() -> None:
    """With `fallback="eager"` and nothing in the store, Dynamo's graph runs as it is: no compilation at all."""
    model, x = Norm(), torch.randn(6, 64)
    result = apply(model, fallback="eager")(x)
    assert torch.equal(model(x), result)
    result.sum().backward()
    assert model.weight.grad is not None


def test_attention_block_trains() -> None:
    """Embedding, attention, SwiGLU and cross-entropy, all regions served: loss and gradients are eager's."""
    model, tokens = planting.Block(), torch.randint(0, 50, (2, 12))
    planted = planting.plant(model, tokens)
    expected = model(tokens)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    actual = apply(model)(tokens)
    got = torch.autograd.grad(actual, list(model.parameters()))
    torch.testing.assert_close(expected, actual)
    torch.testing.assert_close(wanted, got, rtol=1e-4, atol=1e-5)
    assert len(planted) >= 5
    assert 0 == calls()[1]


def test_explain_counts_what_is_left() -> None:
    """`explain` says how many nodes stay with Inductor, and why."""
    model, x = Norm().eval(), torch.randn(6, 64)
    with torch.no_grad():
        apply(model)(x)
    assert "left to Inductor" in accelopt_compile.explain()
    (graph,) = accelopt_compile.explain(structured=True)
    assert {"graph", "regions", "refused", "seconds"} <= graph.keys()

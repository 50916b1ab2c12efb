"""Kernels of a store become solutions that run without it; definitions, workloads and traces go with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from accelopt_backends.cpp import CppBackend
from accelopt_cache.kernel_store import Store
from accelopt_compile.cli import run
from accelopt_compile.cli.backends import backends
from accelopt_compile.exchange.dataset import export
from accelopt_compile.exchange.describing import Unexportable, contiguous, described
from accelopt_compile.records import KernelSource, Node, Ref, TensorSpec, Workload
from tests.exchange.exporting import imported_into, record_of, reference_of, seed_record, solution_module


def relu(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> Workload:
    spec = TensorSpec(dtype="f32", shape=shape, strides=strides)
    symbols = tuple(sorted({d for d in shape if isinstance(d, str)}))
    node = Node(op="aten.relu.default", args=(Ref("i", 0),), outputs=(spec,))
    return Workload(inputs=(spec,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,), symbols=symbols)


def cpp_target() -> str:
    from accelopt_backends.cpp import toolchain

    return toolchain.find().target


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    return Store.open()


def test_a_winner_for_a_definition_is_a_solution_that_computes_it(store: Store, tmp_path: Path) -> None:
    """Definition, workload, seed kernel, solution: its `run` takes the definition's inputs, at a size never seen before."""
    found = imported_into(store, "residual_rmsnorm_two_results")
    record = seed_record(CppBackend(), found, target=cpp_target())
    (written,) = export([("ab" * 32, record)], store=_with(store, record, found), backends=backends(), out=tmp_path / "out")
    assert ("", True, False) == (written.why_not, written.traced, written.candidate)
    inputs = [torch.randn(4, 7, 64), torch.randn(4, 7, 64), torch.randn(64)]
    results = solution_module(tmp_path / "out", tmp_path).run(*inputs)
    for result, wanted in zip(results, reference_of("residual_rmsnorm_two_results")(*inputs), strict=True):
        torch.testing.assert_close(result, wanted)


def _with(store: Store, record: Any, found: Any) -> Store:
    link = found.captures[0].whole
    store.put(record, link.workload)
    return store


def test_a_solution_refuses_what_it_was_not_made_for(store: Store, tmp_path: Path) -> None:
    """Another scalar, shape or type is an error with the reason, never a wrong result."""
    found = imported_into(store, "rmsnorm_h128")
    record = seed_record(CppBackend(), found, target=cpp_target())
    export([("ab" * 32, record)], store=_with(store, record, found), backends=backends(), out=tmp_path / "out")
    module = solution_module(tmp_path / "out", tmp_path)
    x, weight = torch.randn(3, 128, dtype=torch.bfloat16), torch.randn(128, dtype=torch.bfloat16)
    torch.testing.assert_close(module.run(x, weight, 1e-5), reference_of("rmsnorm_h128")(x, weight, 1e-5))
    with pytest.raises(ValueError, match="made for eps = 1e-05"):
        module.run(x, weight, 1e-3)
    with pytest.raises(ValueError, match="made for hidden_states of shape"):
        module.run(x.float(), weight, 1e-5)


def test_a_candidate_is_marked_and_has_no_trace(store: Store, tmp_path: Path) -> None:
    """A kernel that never ran on its device has no time to tell."""
    found = imported_into(store, "softmax_v")
    record = seed_record(CppBackend(), found, target=cpp_target(), rung="simulated")
    (written,) = export([("cd" * 32, record)], store=_with(store, record, found), backends=backends(), out=tmp_path / "out")
    assert (True, False) == (written.candidate, written.traced)
    assert [] == list((tmp_path / "out").glob("traces/**/*.jsonl"))
    (path,) = (tmp_path / "out").glob("solutions/*/*/*.json")
    assert "CANDIDATE" in json.loads(path.read_text())["description"]


def test_a_kernel_of_a_model_gets_a_definition(store: Store, tmp_path: Path) -> None:
    """A workload that nobody defined is described: its reference computes what the kernel does."""
    workload = relu(("s0", 8), (8, 1))
    record = record_of(workload, CppBackend().seed(workload), {"s0": 5}, target=cpp_target())
    store.put(record, workload)
    (written,) = export([("ef" * 32, record)], store=store, backends=backends(), out=tmp_path / "out")
    assert ("", True) == (written.why_not, written.traced)
    (path,) = (tmp_path / "out").glob("definitions/*/*.json")
    namespace: dict[str, Any] = {}
    exec(json.loads(path.read_text())["reference"], namespace)
    x = torch.randn(6, 8)
    torch.testing.assert_close(solution_module(tmp_path / "out", tmp_path).run(x), namespace["run"](x))


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (relu((8, "s0"), (1, 8)), "contiguous"),
        (relu(("s0*s1",), (1,)), "no dimension of an input by itself"),
        (replace(relu(("s0", 8), (8, 1)), aliases=((0, 0),)), "writes over its inputs"),
    ],
)
def test_what_the_format_cannot_say_is_a_reason(workload: Workload, said: str) -> None:
    """Strides, sizes that no input shows, and updates in place have no form there."""
    workload = replace(workload, symbols=("s0", "s1")) if "s0*s1" in workload.inputs[0].shape else workload
    with pytest.raises(Unexportable, match=said):
        described(workload)


def test_contiguity_is_seen_through_symbols() -> None:
    """Strides as products of sizes, in whatever spelling."""
    assert contiguous(TensorSpec(dtype="f32", shape=("s0", "s1*4", 8), strides=("s1*32", 8, 1)))
    assert not contiguous(TensorSpec(dtype="f32", shape=("s0", "s1"), strides=(0, 1)))


def test_the_compiler_flags_of_a_target_are_those_it_was_built_with() -> None:
    """An exported kernel is built as it was proven."""
    from accelopt_backends.cpp import toolchain
    from accelopt_backends.cpp.standalone import march_of

    assert toolchain.find().march == march_of(toolchain.find().target)


def test_names_of_a_definition_stay_in_the_folder(store: Store, tmp_path: Path) -> None:
    """A name with slashes and dots is a file name without them."""
    from accelopt_compile.exchange.dataset import _file_name

    assert "______etc_x" == _file_name("../../etc/x")


def test_the_commands(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """import keeps the regions, export writes what there is and says what it left out; wrong formats are named."""
    here = Path(__file__).parent / "definitions"
    assert 0 == run(["cache", "import", str(here / "softmax_v.json"), str(here / "softmax_v.jsonl"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ("softmax_v", True) == (told["definition"], told["captures"][0]["whole"])
    assert 3 == run(["cache", "import", str(here / "paged_sum.json"), str(here / "paged_sum.jsonl"), "-q"])
    assert "CUT paged_sum" in capsys.readouterr().out
    assert 2 == run(["cache", "export", str(tmp_path / "out")])
    assert "there is no kernel to export" in capsys.readouterr().err
    assert 2 == run(["cache", "export", str(tmp_path / "out"), "--format", "csv"])
    assert "'csv' does not exist; it is flashinfer-bench" in capsys.readouterr().err
    workload = relu(("s0", 8), (8, 1))
    store.put(record_of(workload, KernelSource(language="none", text="x"), {"s0": 5}, target="none-none"), workload)
    assert 3 == run(["cache", "export", str(tmp_path / "out"), "--json"])
    assert "no backend here writes none" == json.loads(capsys.readouterr().out)["records"][0]["why_not"]

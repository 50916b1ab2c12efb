"""Wrong Triton kernels that only a run shows fall in the interpreter, at the stage and for the reason that their header says."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelopt_backends.triton import TritonBackend
from accelopt_compile.evaluate import Evaluator, Limits, open_evaluator
from accelopt_compile.records import KernelSource, Node, Ref, Rejected, Stage, TensorSpec, Workload
from tests.kernels.corpus import Sample, samples
from tests.kernels.workloads import task

SAMPLES = [s for s in samples("triton_hostile", "*.py") if s.stages != (Stage.SCREEN,)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache root of this test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton-cache"))
        yield


@pytest.fixture(scope="module")
def evaluator(request: pytest.FixtureRequest, cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """Judges kernels for the workload that the test's parameter names."""
    wanted, workdir = task(request.param), str(tmp_path_factory.mktemp("work"))
    limits = Limits(call_s=3.0)
    with open_evaluator(
        wanted.workload, wanted.binding, backend=TritonBackend(), threads=1, seed=11, workdir=workdir, limits=limits
    ) as opened:
        yield opened


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("evaluator", "sample"),
    [pytest.param(s.workload, s, id=f"{s.workload}-{s.name}") for s in SAMPLES],
    indirect=["evaluator"],
)
def test_a_wrong_kernel_falls_where_it_should(evaluator: Evaluator, sample: Sample) -> None:
    """Rejected at the stage where it is wrong, for the reason that an author of kernels needs to hear."""
    source = KernelSource(language="triton", text=sample.text, origin="llm")
    verdict = evaluator.verify(source, {}, seeds=[secrets.randbits(62)])
    assert isinstance(verdict, Rejected), verdict
    assert verdict.stage in sample.stages, verdict
    assert sample.header["reason"] in f"{verdict.reason} | {verdict.diagnosis}"


def test_tf32_is_rejected_where_the_workload_does_not_allow_it(cache: None, tmp_path: Path) -> None:
    """The interpreter rounds a dot's operands as the device would: a product in tf32 is no right answer at full precision."""
    exact, allowed = product("highest"), product("high")
    seed = TritonBackend().seed(allowed)
    assert 'input_precision="tf32"' in seed.text
    with open_evaluator(exact, {"s0": 20}, backend=TritonBackend(), threads=1, seed=11, workdir=str(tmp_path)) as opened:
        verdict = opened.verify(seed, seed.defaults(), seeds=[secrets.randbits(62)])
    assert isinstance(verdict, Rejected), verdict
    assert verdict.stage == Stage.NUMERICS, verdict


def product(precision: str) -> Workload:
    """s0 x 40 by 40 x 16 in float32, under that flag."""
    left, right, out = (TensorSpec(dtype="f32", shape=s, strides=(s[1], 1)) for s in (("s0", 40), (40, 16), ("s0", 16)))
    return Workload(
        inputs=(left, right),
        nodes=(Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(out,)),),
        outputs=(Ref("n", 0),),
        output_specs=(out,),
        symbols=("s0",),
        numerics=(("float32_matmul_precision", precision),),
    )

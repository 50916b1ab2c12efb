"""Occupancy, rooflines and estimates: pure functions of what was built, for devices that are not here."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from accelopt_backends.loops.work import bytes_touched, product_flops
from accelopt_backends.triton import TritonBackend, peaks
from accelopt_backends.triton.device import specialised
from accelopt_backends.triton.estimate import Occupancy, estimate, occupancy
from accelopt_backends.triton.roofline import bound_by
from accelopt_backends.triton.targets import TARGETS, nearest, target_named
from accelopt_backends.triton.traffic import accesses
from accelopt_compile.records import Artifact, Node, Ref, TensorSpec, Workload
from tests.backends.triton.kernel_samples import HEAD, PRODUCT, SOFTMAX, product_workload, softmax_workload


def artifact(folder: Path, text: str, launch: dict[str, int], **tunables: int) -> Artifact:
    """As if built, with these figures for its one launch."""
    path = folder / "kernel.py"
    path.write_text(text)
    figures = {
        "threads": 128,
        "registers": 32,
        "shared_bytes": 0,
        "num_warps": 4,
        "instructions": 200,
        "vector_loads": 1,
    } | launch
    return Artifact(path=str(path), source_digest="", tunables=tunables, features={"launches": [figures]})


@pytest.mark.parametrize(
    "target, threads, registers, shared, programs, limit",
    [
        ("sm_80", 128, 32, 0, 16, "threads"),
        ("sm_80", 128, 128, 0, 4, "registers"),
        ("sm_80", 256, 255, 0, 1, "registers"),
        ("sm_80", 128, 32, 98304, 1, "shared memory"),
        ("sm_90", 128, 32, 98304, 2, "shared memory"),
        ("sm_90", 32, 16, 0, 32, "programs"),
        ("gfx942", 256, 128, 0, 4, "registers"),
        ("gfx942", 256, 32, 32768, 2, "shared memory"),
    ],
)
def test_occupancy_is_what_the_limits_allow(
    target: str, threads: int, registers: int, shared: int, programs: int, limit: str
) -> None:
    """By hand: registers a multiprocessor over registers a program, and so on."""
    found = occupancy({"threads": threads, "registers": registers, "shared_bytes": shared}, target_named(target))
    arch = target_named(target)
    share = programs * threads / arch.most_threads
    assert Occupancy(programs=programs, warps=programs * threads // arch.warp, share=share, limit=limit) == found


def test_the_bytes_and_products_of_a_workload_are_counted() -> None:
    """A product reads both factors and writes its result; softmax multiplies no matrices."""
    assert 2 * (2 * 100 * 256 + 256 * 256) == bytes_touched(product_workload(), {"s0": 100})
    assert {"bf16": 2 * 100 * 256 * 256} == product_flops(product_workload(), {"s0": 100})
    assert {} == product_flops(softmax_workload(), {"s0": 100})


@pytest.mark.parametrize("causal, share", [(False, 1.0), (True, 0.5)])
def test_attention_counts_its_two_products(causal: bool, share: float) -> None:
    """Half of them where it is causal, and not where another argument happens to be true."""
    spec = TensorSpec(dtype="bf16", shape=(2, 8, 128, 64), strides=(65536, 8192, 64, 1))
    args = (Ref("i", 0), Ref("i", 1), Ref("i", 2), None, True, 0.0, causal)
    node = Node(op="aten._scaled_dot_product_efficient_attention.default", args=args, outputs=(spec,))
    workload = Workload(inputs=(spec,) * 3, nodes=(node,), outputs=(Ref("n", 0),), output_specs=(spec,))
    assert {"bf16": int(share * 4 * 2 * 8 * 128 * 128 * 64)} == product_flops(workload, {})


@pytest.mark.parametrize("name", TARGETS)
def test_the_roofline_is_bytes_over_bandwidth_or_products_over_peak(name: str) -> None:
    """Softmax is bound by memory, a large product by its arithmetic."""
    target, peak = target_named(name), peaks.published(target_named(name))
    softmax = TritonBackend(name).roofline(softmax_workload(), {"s0": 1 << 20}, 1)
    assert ("memory", pytest.approx(2 * 2 * 1000 * (1 << 20) / peak.memory)) == (softmax.bound, softmax.seconds)
    big = TensorSpec(dtype="bf16", shape=(8192, 8192), strides=(8192, 1))
    node = Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 0)), outputs=(big,))
    workload = Workload(inputs=(big,), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(big,))
    assert ("compute", pytest.approx(2 * 8192**3 / peak.products["bf16"])) == (
        bound_by(workload, {}, peaks.published(target)).bound,
        bound_by(workload, {}, peaks.published(target)).seconds,
    )


def test_float32_products_use_tf32_where_the_workload_allows() -> None:
    """And no more where it does not."""
    peak = peaks.published(target_named("sm_90"))
    assert 67e12 == peak.of_products("f32", "highest")
    assert 494.7e12 == peak.of_products("f32", "high")
    assert 989.4e12 == peak.of_products("bf16", "highest")


def test_estimates_are_never_below_the_roofline(tmp_path: Path) -> None:
    """Of kernels that read everything once, whatever their size."""
    backend = TritonBackend("sm_90")
    for rows in (1, 100, 4096, 1 << 20):
        built = artifact(tmp_path, SOFTMAX, {})
        assert backend.roofline(softmax_workload(), {"s0": rows}, 1).seconds < backend.estimate(
            built, softmax_workload(), {"s0": rows}
        )


def test_what_costs_time_costs_time_in_the_estimate(tmp_path: Path) -> None:
    """Spills, few programs at once, narrow loads, a second reading."""
    target, workload, sizes = target_named("sm_90"), softmax_workload(), {"s0": 1 << 17}

    def seconds(text: str = SOFTMAX, **launch: int) -> float:
        return estimate(artifact(tmp_path, text, launch), workload, sizes, target).seconds

    best = seconds()
    twice = SOFTMAX.replace("        e = tl.exp", "        z = tl.load(in0 + row * 1000 + cols, mask=live)\n        e = tl.exp")
    assert best < seconds(spill_bytes=256)
    assert best < seconds(shared_bytes=200 << 10)
    assert best < seconds(vector_loads=0, global_loads=1)
    assert best < seconds(twice)


def test_products_are_fastest_on_instructions_for_groups_of_warps(tmp_path: Path) -> None:
    """Then come those of single warps, then none; where an arch has no groups the first two are one."""
    side = TensorSpec(dtype="bf16", shape=("s0", 8192), strides=(8192, 1))
    square = TensorSpec(dtype="bf16", shape=(8192, 8192), strides=(8192, 1))
    node = Node(op="aten.mm.default", args=(Ref("i", 0), Ref("i", 1)), outputs=(side,))
    workload = Workload(inputs=(side, square), nodes=(node,), outputs=(Ref("n", 0),), output_specs=(side,), symbols=("s0",))

    def seconds(target: str, **figures: int) -> float:
        return estimate(artifact(tmp_path, PRODUCT, figures), workload, {"s0": 8192}, target_named(target)).seconds

    assert seconds("sm_90", tensor=8, grouped=8) < seconds("sm_90", tensor=8) < seconds("sm_90")
    assert seconds("sm_80", tensor=8, grouped=8) == seconds("sm_80", tensor=8) < seconds("sm_80")


def test_a_grid_that_leaves_the_device_idle_is_slow(tmp_path: Path) -> None:
    """One program has no more than a share of the bandwidth, and the notes say why."""
    built = artifact(tmp_path, SOFTMAX, {}, ROWS=4)
    found = estimate(built, softmax_workload(), {"s0": 4}, target_named("sm_90"))
    assert any("leave 99% of the multiprocessors idle" in note for note in found.notes)
    assert "estimate" in found.notes[0]


def test_larger_tiles_read_the_factors_less_often(tmp_path: Path) -> None:
    """The more programs share a product, the more is read."""
    workload, target = product_workload(), target_named("sm_90")
    figures = {"tensor": 8, "threads": 128}
    small, large = (
        estimate(artifact(tmp_path, PRODUCT, figures, M=m, N=m), workload, {"s0": 1 << 16}, target) for m in (64, 128)
    )
    assert "MB again" in small.notes[1]
    assert again(large.notes[1]) < again(small.notes[1])


def again(note: str) -> float:
    return float(note.split(" MB again")[0].rsplit(" ", 1)[1])


def test_launches_that_are_not_made_cost_nothing(tmp_path: Path) -> None:
    """An empty grid, and what follows a return."""
    built = artifact(tmp_path, SOFTMAX, {})
    assert 1e-7 == estimate(built, softmax_workload(), {"s0": 0}, target_named("sm_90")).seconds
    left = artifact(tmp_path, SOFTMAX.replace("    rows[", "    if s0 > 3: return\n    rows["), {})
    assert 1e-7 == estimate(left, softmax_workload(), {"s0": 9}, target_named("sm_90")).seconds


def test_places_that_read_a_pointer_are_counted_through_names_and_functions() -> None:
    """A pointer that moves along is the same pointer; an index that was loaded is none."""
    text = (
        HEAD
        + """@triton.jit
def fetch(place, i):
    return tl.load(place + i)


@triton.jit
def one(in0, in1, out0):
    i = tl.arange(0, 16)
    at = in0 + i
    at += 16
    index = tl.load(at)
    x = tl.load(in1 + index) + fetch(in1, i)
    tl.store(out0 + i, x)
"""
    )
    assert (("in0", "in1", "out0"), {"in0": 1, "in1": 2, "out0": 1}) == accesses(text)["one"]


def test_measured_peaks_are_kept_by_device(tmp_path: Path) -> None:
    """Read back as they were written; a damaged file, or one of another format, is measured again."""
    path = tmp_path / "devices" / "one.json"
    known = peaks.PUBLISHED["sm_90"]
    peaks.write(path, known)
    assert known == replace(peaks.read(path) or known, products=dict(known.products))
    assert asdict(known) == asdict(peaks.read(path) or peaks.PUBLISHED["sm_80"])
    path.write_text(path.read_text().replace('"memory": 3', '"memory": -3'))
    assert peaks.read(path) is None
    path.write_text("{")
    assert peaks.read(path) is None
    assert peaks.stored_at("a") != peaks.stored_at("b")


def test_an_arch_without_figures_has_those_of_the_one_before() -> None:
    """Never those of a faster one."""
    assert peaks.PUBLISHED["sm_80"] == peaks.published(nearest("cuda", "sm_89", {}))
    assert peaks.PUBLISHED["sm_100"] == peaks.published(nearest("cuda", "sm_120", {}))


def test_a_launch_is_specialised_by_what_its_values_are_divisible_by() -> None:
    """Addresses and sizes alike; constants are none."""
    assert (True, False, True, False) == specialised([4096, 4098, 32, 16], ["*bf16", "*bf16", "i64", "constexpr"])

"""Building for devices that are not here: what comes out, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from accelopt_backends.base import Missing, Ready
from accelopt_backends.triton import TritonBackend, features, toolchain
from accelopt_backends.triton.binding import launches
from accelopt_backends.triton.source import parse
from accelopt_backends.triton.targets import TARGETS, nearest, target_named
from accelopt_compile.errors import ToolchainFailed
from accelopt_compile.records import Artifact
from tests.backends.triton.kernel_samples import PRODUCT, SOFTMAX, source


def built(text: str, folder: Path, target: str = "sm_90", **tunables: int) -> Artifact:
    return toolchain.build(source(text), tunables, str(folder), target_named(target))


def refusal(text: str, folder: Path, target: str = "sm_90", **tunables: int) -> str:
    with pytest.raises(ToolchainFailed) as failed:
        built(text, folder, target, **tunables)
    return f"{failed.value}\n{failed.value.diagnosis}"


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_builds_for_every_target(target: str, tmp_path: Path) -> None:
    """Registers, threads and instructions are told for each, and nothing spills."""
    artifact = built(SOFTMAX, tmp_path, target)
    assert target == artifact.features["target"]
    assert 0 == artifact.features["spill_bytes"]
    assert 4 * target_named(target).warp == artifact.features["threads"]
    assert 10 < artifact.features["registers"] < 128
    assert artifact.features["instructions"] > 100
    assert artifact.features["global_loads"] >= 1


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_products_use_matrix_instructions(target: str, tmp_path: Path) -> None:
    """A bf16 dot becomes matrix instructions, fed by wide loads."""
    artifact = built(PRODUCT, tmp_path, target)
    assert artifact.features["tensor"] >= 1
    assert artifact.features["shared_bytes"] >= 4096


def test_everything_is_written_below_the_build_folder(tmp_path: Path) -> None:
    """The exact source is kernel.py; the compiler's files lie beside it."""
    artifact = built(SOFTMAX, tmp_path)
    assert ["compiled", "kernel.py"] == sorted(p.name for p in tmp_path.iterdir())
    assert SOFTMAX == Path(artifact.path).read_text()


def test_divisible_arguments_make_wide_loads(tmp_path: Path) -> None:
    """The launcher's specialisation is imitated: rows of 1000 bf16 numbers are read 16 bytes at a time."""
    assert 1 <= built(SOFTMAX, tmp_path).features["vector_loads"]


def test_more_shared_memory_than_the_target_has_is_refused(tmp_path: Path) -> None:
    """With the numbers, and what to change."""
    said = refusal(PRODUCT, tmp_path, "sm_80", M=128, N=256, K=64, STAGES=8)
    assert "KiB of shared memory, sm_80 has 163 KiB" in said
    assert "num_stages" in said


def test_too_many_threads_are_refused(tmp_path: Path) -> None:
    """32 warps of 64 threads are more than a program may have."""
    text = SOFTMAX.replace("WARPS=(4, 8)", "WARPS=(32,)")
    assert "num_warps=32 makes 2048 threads on gfx942" in refusal(text, tmp_path, "gfx942")
    assert 1024 == built(text, tmp_path, "sm_90").features["threads"]


@pytest.mark.parametrize("options, target", [("num_warps=3", "sm_90"), ("num_ctas=2", "sm_80"), ("num_stages=0", "sm_90")])
def test_options_that_the_target_lacks_are_refused(options: str, target: str, tmp_path: Path) -> None:
    """Before the compiler is asked, with the line of the launch."""
    said = refusal(SOFTMAX.replace("num_warps=WARPS", options), tmp_path, target)
    assert options in said and "line 19" in said


def test_a_constant_that_needs_a_size_is_refused(tmp_path: Path) -> None:
    """A kernel is built once for all sizes, and the message says what to do instead."""
    said = refusal(SOFTMAX.replace("BLOCK=BLOCK", "BLOCK=triton.next_power_of_2(s0)"), tmp_path)
    assert "the constant BLOCK of rows depends on s0" in said
    assert "pass sizes as arguments" in said


def test_a_compiler_error_has_the_line_of_the_file_and_a_caret(tmp_path: Path) -> None:
    """Not the line of the function, and without the compiler's own frames."""
    said = refusal(SOFTMAX.replace("tl.sum(e, axis=0)", "tl.sum(e, axis=3)"), tmp_path)
    lines = said.splitlines()
    number = next(n for n, line in enumerate(SOFTMAX.splitlines(), 1) if "tl.sum" in line)
    assert f"line {number}: invalid axis 3" in lines[1]
    assert "y = e / tl.sum(e, axis=3)" in lines[2]
    assert "^" == lines[3].strip()
    assert "site-packages" not in said


def test_an_unknown_name_is_named(tmp_path: Path) -> None:
    """Together with where it stands."""
    said = refusal(SOFTMAX.replace("tl.exp(x", "tl.exq(x"), tmp_path)
    assert "line 13" in said and "exq" in said


def test_a_launch_that_does_not_fit_its_function_is_refused(tmp_path: Path) -> None:
    """Whatever is missing or too much is named."""
    assert "rows lacks ROWS" in refusal(SOFTMAX.replace("ROWS=ROWS, ", ""), tmp_path)
    assert "rows takes 5 arguments, 6 are given" in refusal(
        SOFTMAX.replace("(in0, out0, s0, ROWS=R", "(in0, out0, s0, 1, 1, 1, ROWS=R"), tmp_path
    )
    assert "rows takes no DEPTH" in refusal(SOFTMAX.replace("ROWS=ROWS, ", "ROWS=ROWS, DEPTH=1, "), tmp_path)


def test_the_host_function_must_be_readable(tmp_path: Path) -> None:
    """A source that is no program is refused like one that does not compile."""
    with pytest.raises(ToolchainFailed, match="the host function"):
        toolchain.parsed("import triton\n")


def test_launches_that_tunables_rule_out_are_not_built() -> None:
    """A kernel may end early for a choice of its own."""
    text = SOFTMAX.replace("    rows[", "    if ROWS == 4: return\n    rows[")
    assert 0 == len(launches(parse(text), {"ROWS": 4, "BLOCK": 1024, "WARPS": 4}))
    assert 1 == len(launches(parse(text), {"ROWS": 1, "BLOCK": 1024, "WARPS": 4}))


def test_values_that_cannot_run_are_not_valid() -> None:
    """Without building: threads, clusters, and values that were not declared."""
    text = SOFTMAX.replace("WARPS=(4, 8)", "WARPS=(4, 32, 6)")
    assert TritonBackend("sm_90").valid(source(text), {"WARPS": 32})
    assert not TritonBackend("gfx942").valid(source(text), {"WARPS": 32})
    assert not TritonBackend("sm_90").valid(source(text), {"WARPS": 6})
    assert not TritonBackend("sm_90").valid(source(text), {"WARPS": 16})
    assert not TritonBackend("sm_90").valid(source(text), {"DEPTH": 1})


def test_without_a_device_the_backend_proves_by_simulation() -> None:
    """For the target that was asked for; a name that none has is an answer, not an error."""
    ready = TritonBackend("gfx942").probe()
    assert isinstance(ready, Ready)
    assert ("triton-hip-gfx942", "simulated") == (ready.target, ready.rung)
    assert {"compiler", "flags"} <= set(ready.environment)
    assert isinstance(TritonBackend("sm_3").probe(), Missing)


def test_a_device_that_no_table_knows_gets_the_limits_that_it_tells() -> None:
    """sm_89 has less shared memory than sm_80, and no clusters."""
    target = nearest("cuda", "sm_89", {"multiprocessors": 142, "shared_bytes": 101376})
    assert ("triton-cuda-sm_89", 142, 101376, False) == (
        target.name,
        target.multiprocessors,
        target.shared_bytes,
        target.clusters,
    )
    assert nearest("cuda", "sm_103", {}).clusters
    assert 99 << 10 == target_named("triton-cuda-sm_89").shared_bytes


def test_counts_are_read_off_a_disassembly() -> None:
    """Predicated and wide instructions included; without a disassembly there are no counts."""
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/              @!P1 STG.E.128 desc[UR4][R2.64], R4 ;
        /*0030*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0040*/                   MUFU.EX2 R0, R0 ;
"""
    found = features.instruction_mix(text)
    assert {
        "instructions": 5,
        "global_loads": 1,
        "global_stores": 1,
        "tensor": 1,
        "grouped": 1,
        "special": 1,
        "vector_loads": 1,
        "vector_stores": 1,
    } == found
    assert {} == features.instruction_mix("")
    assert {"registers": 31, "spill_bytes": 8} == features.resource_usage("REG:31 STACK:8 SHARED:0 LOCAL:0")

"""Triton as authors read and write it."""

from __future__ import annotations

import time

import pytest

from accelopt_backends.triton import TritonBackend, authored
from accelopt_backends.triton.source import parse
from accelopt_compile.records import KernelSource
from tests.kernels.workloads import task

BACKEND = TritonBackend()
KERNEL = """# Größe × 2 in a comment
import triton
import triton.language as tl


@triton.jit
def kernel(in0, out0, s0, BLOCK: tl.constexpr):
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out0 + k, tl.load(in0 + k, mask=k < s0), mask=k < s0)


def accelopt_kernel(
    in0: "*fp32", out0: "*fp32", s0: "i64", *, BLOCK=(1024, 512,
        2048), WARPS=(4, 8), ONE=(1,)
):
    kernel[(triton.cdiv(s0, BLOCK),)](in0, out0, s0, BLOCK=BLOCK, num_warps=WARPS)
"""


@pytest.mark.parametrize("name", ["softmax_bf16", "layer_norm", "gelu_silu", "column_sum"])
def test_a_kernel_survives_being_read_and_written(name: str) -> None:
    """What an author copies unchanged is the same text with the same tunables."""
    seed = BACKEND.seed(task(name).workload)
    copied = BACKEND.written(BACKEND.shown(seed, seed.defaults()))
    assert seed.tunables == copied.tunables
    assert seed.text.strip() == copied.text.strip()


def test_an_author_sees_the_numbers_in_force_first() -> None:
    """A tuned kernel is shown with its tuned numbers as defaults, the others in their order."""
    source = authored.written(KERNEL)
    shown = authored.shown(source, {"BLOCK": 2048, "WARPS": 8, "ONE": 1})
    again = authored.written(shown)
    assert {"BLOCK": (2048, 1024, 512), "WARPS": (8, 4), "ONE": (1,)} == dict(again.tunables)
    assert shown.partition("def accelopt_kernel")[0] == source.text.partition("def accelopt_kernel")[0]
    assert authored.shown(again, again.defaults()) == shown


def test_an_author_is_named() -> None:
    """Origin, language, the tunables of the host function, and line ends as we write them."""
    source = authored.written("\n\n" + KERNEL.replace("\n", "\r\n"))
    assert ("triton", "llm", KERNEL) == (source.language, source.origin, source.text)
    assert {"BLOCK": 1024, "WARPS": 4, "ONE": 1} == source.defaults()
    assert parse(source.text).tunables == source.tunables


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("WARPS=(4, 8)", "WARPS=4", "tunable WARPS is no tuple"),
        ("WARPS=(4, 8)", "WARPS=()", "tunable WARPS is no tuple"),
        ("WARPS=(4, 8)", "WARPS=(4, True)", "tunable WARPS is no tuple"),
        ("WARPS=(4, 8)", "WARPS=(4, -8)", "tunable WARPS is no tuple"),
        ("ONE=(1,)", "one=(1,)", "capital first"),
        ("WARPS=(4, 8)", "WARPS", "tunable WARPS is no tuple"),
        ("def accelopt_kernel", "def run", "no host function"),
        ("kernel[(", "other[(", "no device function"),
        ("num_warps=WARPS", "num_warps=WARP", "the name WARP"),
        ("tl.store(", "tl.store((", "no Python"),
        ('in0: "*fp32"', "in0", "parameter in0 has no type"),
        ('in0: "*fp32"', 'in0: "*float"', "parameter in0 has no type"),
        ("ONE=(1,)", ", ".join(f"T{i}=(1,)" for i in range(17)), "at most 16"),
        ("# Größe", "#" + " " * 300_000, "at most 131072"),
        ("# Größe", "x = " + "(" * 100_000 + "\n#", "no Python"),
        ("ONE=(1,)", "ONE=(" + "1" * 5000 + ",)", "no Python|no tuple"),
    ],
)
def test_a_bad_text_is_told_to_its_author(old: str, new: str, reason: str) -> None:
    """Each mistake has a reason that names it, soon."""
    assert old in KERNEL
    started = time.process_time()
    with pytest.raises(ValueError, match=reason):
        authored.written(KERNEL.replace(old, new, 1))
    assert time.process_time() - started < 2


def test_a_source_without_tunables_is_shown_as_it_is() -> None:
    """There is nothing to say then."""
    text = KERNEL.replace(", *, BLOCK=(1024, 512,\n        2048), WARPS=(4, 8), ONE=(1,)", "").replace(
        "BLOCK=BLOCK, num_warps=WARPS", "BLOCK=64"
    )
    text = text.replace("cdiv(s0, BLOCK)", "cdiv(s0, 64)")
    source = KernelSource(language="triton", text=text)
    assert text == authored.shown(source, {})

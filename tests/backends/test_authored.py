"""C++ as authors read and write it."""

from __future__ import annotations

import re
import tempfile
import time

import pytest

from accelopt_backends.cpp import CppBackend, authored
from accelopt_backends.cpp.expressions import sections
from accelopt_compile.records import KernelSource
from tests.kernels.workloads import task

BACKEND = CppBackend()
KERNEL = (
    '//@ library\nextern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) { return 0; }\n'
)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["softmax_bf16", "layer_norm", "attention", "topk", "gelu_silu"])
def test_a_kernel_survives_being_read_and_written(name: str) -> None:
    """What an author copies unchanged builds into the same machine code, at the same tunables."""
    workload = task(name).workload
    seed = BACKEND.seed(workload)
    copied = BACKEND.written(BACKEND.shown(seed, seed.defaults()))
    assert seed.tunables == copied.tunables
    assert [] == list(BACKEND.screen(copied))
    with tempfile.TemporaryDirectory() as folder:
        digests = [BACKEND.build(s, s.defaults(), folder).features["instructions"] for s in (seed, copied)]
    assert digests[0] == digests[1]


def test_an_author_sees_the_numbers_in_force_first() -> None:
    """A tuned kernel is shown with its tuned numbers as defaults."""
    source = BACKEND.seed(task("softmax_bf16").workload)
    shown = BACKEND.shown(source, {**source.defaults(), "UNROLL": 2})
    assert 2 == BACKEND.written(shown).defaults()["UNROLL"]


def test_the_library_is_one_line_for_an_author() -> None:
    """A kernel is shown without the 500 lines that all kernels share."""
    source = BACKEND.seed(task("softmax_bf16").workload)
    shown = BACKEND.shown(source, source.defaults())
    assert 1 == shown.count(authored.LIBRARY)
    assert len(shown) < len(source.text) / 3
    assert "INLINE vf exp_up_to_0" not in shown


def test_a_text_without_the_library_stands_for_itself() -> None:
    """Nothing is added to a kernel that declares everything itself."""
    text = 'extern "C" int accelopt_kernel(void* const*, const long*, long) { return 0; }\n'
    assert KernelSource(language="cpp", text=text, origin="llm") == BACKEND.written(text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('// TUNABLES: {"UNROLL": [4, 2}', "not JSON"),
        ('// TUNABLES: ["UNROLL"]', "one JSON object"),
        ('// TUNABLES: {"unroll": [4]}', "capitals"),
        ('// TUNABLES: {"A B": [4]}', "capitals"),
        ('// TUNABLES: {"UNROLL": []}', "different integers"),
        ('// TUNABLES: {"UNROLL": [4, 4]}', "different integers"),
        ('// TUNABLES: {"UNROLL": [-1]}', "different integers"),
        ('// TUNABLES: {"UNROLL": [true]}', "different integers"),
        ('// TUNABLES: {"UNROLL": [1.5]}', "different integers"),
        ('// TUNABLES: {"UNROLL": 4}', "different integers"),
        ('// TUNABLES: {"UNROLL": [99999999]}', "different integers"),
        ("// TUNABLES: {" + ", ".join(f'"T{i}": [1]' for i in range(17)) + "}", "at most 16"),
        ('// TUNABLES: {"A": [1]}\n// TUNABLES: {"B": [1]}', "2 lines"),
        ("//@ library", "twice"),
        ("// TUNABLES: " + "[" * 100_000, "not JSON"),
        ("// TUNABLES: " + '{"A":' * 40_000, "not JSON"),
        ("// TUNABLES: x" + " " * 100_000 + "y", "not JSON"),
        ('// TUNABLES: {"A": [' + "1" * 5000 + "]}", "not JSON"),
        ('// TUNABLES: {"A": [1e999]}', "different integers"),
        ("//" + " " * 300_000, "at most 262144"),
    ],
)
def test_a_bad_declaration_is_told_to_its_author(line: str, reason: str) -> None:
    """Each mistake has a reason that names it, soon."""
    started = time.process_time()
    with pytest.raises(ValueError, match=reason):
        BACKEND.written(f"{line}\n{KERNEL}")
    assert time.process_time() - started < 2


def test_the_guide_names_only_what_the_library_has() -> None:
    """Every function that authors are told of is there."""
    library = "".join(body for _, body in sections().values())
    told = BACKEND.guide().writing.partition("The library (")[2].partition("Errors that authors make")[0]
    names = set(re.findall(r"\b([a-z]\w*?_?)(?=\(|<)", told)) - {"e", "a"}
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", library))
    assert [] == missing
    assert len(names) > 25


def test_the_guide_says_what_this_machine_is() -> None:
    """Target, bandwidth and caches are in it."""
    machine = " ".join(BACKEND.guide().machine)
    assert "cpp-" in machine
    assert "GB/s" in machine

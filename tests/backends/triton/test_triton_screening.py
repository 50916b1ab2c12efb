"""The screen in front of the Triton compiler: what honest authors write passes, what nests or grows for ever is refused soon."""

from __future__ import annotations

import time

import pytest

from accelopt_backends.triton import TritonBackend
from accelopt_backends.triton.screening import screen
from accelopt_backends.triton.source import parse
from accelopt_compile.records import KernelSource
from tests.kernels.workloads import NAMES, task

HEAD = "import triton\nimport triton.language as tl\n"
LAUNCH = "kernel[(s0,)](in0, out0, s0, BLOCK=64)"


def kernel(
    line: str = "", *, module: str = "", host: str = LAUNCH, parameters: str = "in0, out0, s0, BLOCK: tl.constexpr"
) -> str:
    """A right kernel with one line more in its device function."""
    inner = "".join(f"    {one}\n" for one in line.split("\n") if one)
    return f"""{HEAD}{module}

@triton.jit
def kernel({parameters}):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    v = tl.load(in0 + r * 37 + k, mask=k < 37, other=0.0)
{inner}    tl.store(out0 + r * 37 + k, v, mask=k < 37)


def accelopt_kernel(in0: "*fp32", out0: "*fp32", s0: "i64"):
    {host}
"""


def reasons(text: str) -> list[str]:
    return [r.reason for r in screen(KernelSource(language="triton", text=text, origin="llm"))]


@pytest.mark.parametrize(
    "line",
    [
        "# os.environ, __import__('os'), \"quotes\" and ünïcode are prose in a comment",
        "a, _ = tl.split(tl.reshape(v, (BLOCK // 2, 2)))",
        "N: tl.constexpr = BLOCK // 2",
        "for i in tl.static_range(4):\n    v = v + i",
        "for i in tl.range(0, s0, 2, num_stages=3):\n    v += i",
        "n = s0\nwhile n > 1:\n    n = n // 2",
        "if BLOCK > 32:\n    v = v * 2\nelif s0 > 4:\n    v = v + 1\nelse:\n    pass",
        'v = tl.load(in0 + k, mask=k < 0, other=float("-inf"), eviction_policy="evict_first", cache_modifier=".cg") + v',
        "v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        "v = v.to(tl.bfloat16).to(out0.dtype.element_ty)",
        "v = v.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)",
        "t = v[:, None] + v[None, :]\nu = t.T\nn = t.shape[0]",
        "v = v if BLOCK == 64 else -v",
        "b = 0 < s0 < 5 and not (s0 == 3)",
        "h = (r * 0xD2511F53) ^ (r >> 3) & ~r | (r << 2)",
        "o = 1 if v is None else 2",
        'tl.static_assert(BLOCK <= 64, "a block of 64 at most")\ntl.device_assert(r >= 0, "inside")',
        "v = min(BLOCK, 3) + max(BLOCK, 3) + v",
        "if s0 == 0:\n    return",
    ],
)
def test_what_an_honest_author_writes_passes(line: str) -> None:
    """Everything that the language's users do in a device function."""
    assert [] == reasons(kernel(line))


def test_helpers_constants_and_combining_functions_pass() -> None:
    """Device functions that return pointers, tuples and scans; constants at module level."""
    module = '''
LOG2E = tl.constexpr(1.4426950408889634)
LOW = tl.constexpr(-3)
EMPTY = tl.constexpr(float("inf"))


@triton.jit
def joined(a, b):
    """Sum and larger."""
    return a + b


@triton.jit
def at(base, r, k, STEP: tl.constexpr = 37):
    return base + r * STEP + k, k < STEP
'''
    line = "s = tl.associative_scan(v, 0, joined) + tl.reduce(v, axis=0, combine_fn=joined)"
    line += "\np, m = at(out0, r, k)\ntl.store(p, s * LOG2E + LOW, mask=m)"
    assert [] == reasons(kernel(line, module=module))


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_of_the_generator_passes(name: str) -> None:
    """Each structure of each workload, and after it was shown to an author and written unchanged."""
    backend = TritonBackend()
    workload = task(name).workload
    if (why := backend.supports(workload)) is not None:
        pytest.skip(why)
    grammar = backend.grammar(workload)
    chosen = [{}, *({key: value} for key, values in grammar.items() for value in values)]
    for structure in chosen:
        source = backend.render(workload, structure)
        assert [] == list(screen(source))
        assert [] == list(screen(backend.written(backend.shown(source, source.defaults()))))


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("kernel[(s0,)](in0, out0, BLOCK=64)", "2 arguments for 3 parameters"),
        ("kernel[(s0,)](in0, out0, s0, 64)", "4 arguments for 3 parameters"),
        ("kernel[(s0,)](in0, out0, s0)", "the constant BLOCK of kernel is missing"),
        ("kernel[(s0,)](in0, out0, s0, BLOCK=64, ROWS=2)", "has no constant ROWS"),
        ("kernel[(s0,)](in0, out0, s0, BLOCK=64, num_warps=3)", "num_warps of [3]"),
        ("kernel[(s0,)](in0, out0, s0, BLOCK=64, num_warps=64)", "num_warps of [64]"),
        ("kernel[(s0 + in0,)](in0, out0, s0, BLOCK=64)", "arithmetic on the tensor in0"),
        ("other[(s0,)](in0, out0, s0, BLOCK=64)", "other is no device function"),
        ("kernel[(s0,)](in0, in0, s0, BLOCK=64)", "which is the input in0"),
        ("kernel[(s0,)](in0, in0, s0, BLOCK=64)", "no launch stores to out0"),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(launch: str, reason: str) -> None:
    """Before anything is compiled, with the line of the launch."""
    (*_,) = found = screen(KernelSource(language="triton", text=kernel(host=launch)))
    assert any(reason in r.reason for r in found), found
    assert all(r.line >= 11 for r in found)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        ('x: "*fp32", out0: "*fp32", s0: "i64"', "the tensors are not in0"),
        ('out0: "*fp32", in0: "*fp32", s0: "i64"', "the tensors are not in0"),
        ('in0: "*fp32", out0: "*fp32", n: "i64"', "the sizes are not s0"),
        ('in0: "*fp32", out0: "*fp32", s0: "i64", *, block=(1, 2)', "a tunable named 'block'"),
        ('in0: "*fp32", out0: "*fp32", s0: "i64", *, ' + ", ".join(f"T{i}=(1,)" for i in range(17)), "17 tunables"),
    ],
)
def test_a_signature_that_is_not_the_workloads_is_refused(signature: str, reason: str) -> None:
    """Names say which tensor of the workload each is."""
    names = [part.partition(":")[0].strip() for part in signature.split(",")[:3]]
    text = kernel(host=f"kernel[({names[2]},)]({', '.join(names)}, BLOCK=64)").replace(
        'in0: "*fp32", out0: "*fp32", s0: "i64"', signature
    )
    source = KernelSource(language="triton", text=text, tunables=dict(parse(text).tunables))
    assert any(r.reason.startswith(reason) for r in screen(source))


def test_tunables_of_a_record_are_those_of_its_text() -> None:
    """A stored record cannot smuggle in numbers that its author did not declare."""
    (refusal,) = screen(KernelSource(language="triton", text=kernel(), tunables={"BLOCK": (64,)}))
    assert "tunables that are not those of the text" == refusal.reason


def test_another_language_is_refused() -> None:
    """This backend builds one."""
    (refusal,) = screen(KernelSource(language="cpp", text=kernel()))
    assert "language 'cpp'" == refusal.reason


def test_what_was_loaded_is_no_pointer() -> None:
    """Indices read from an input may say where an output is written."""
    assert [] == reasons(kernel("i = tl.load(in0 + k, mask=k < 37, other=0.0).to(tl.int64)\ntl.store(out0 + i, v, mask=k < 37)"))


@pytest.mark.parametrize(
    "piece",
    [
        "(",
        "-",
        "a.",
        "a[",
        "f(",
        "not ",
        "x = 1\n",
        "    if s0:\n",
        "'",
        "é",
        "@triton.jit\n",
        "1+",
        "[",
        "a,",
        "\\\n",
        "lambda: ",
    ],
)
def test_a_hostile_text_does_not_hold_up_the_screen(piece: str) -> None:
    """It runs in the user's process: as much as a source may hold of anything takes seconds at most."""
    started = time.process_time()
    for text in (kernel() + piece * (120_000 // len(piece)), kernel("v = " + piece * (120_000 // len(piece)))):
        assert screen(KernelSource(language="triton", text=text))
    assert time.process_time() - started < 5


def test_calls_that_multiply_are_refused() -> None:
    """Twenty functions that each call the one before twice are a million copies."""
    module = "\n\n@triton.jit\ndef f0(x):\n    return x\n" + "".join(
        f"\n\n@triton.jit\ndef f{i}(x):\n    return f{i - 1}(x) + f{i - 1}(x)\n" for i in range(1, 15)
    )
    assert [] == reasons(kernel("v = f9(v)", module=module.partition("\n\n@triton.jit\ndef f10")[0]))
    assert any("expands to too many terms" in r for r in reasons(kernel("v = f14(v)", module=module)))


@pytest.mark.parametrize("number", [0x0C, 0x0D, 0x1B, 0x7F, 0x80, 0x200B, 0x2028, 0x202E, 0x2069, 0xFEFF, 0xD800])
def test_what_deceives_a_reader_is_refused_even_in_a_comment(number: int) -> None:
    """Orders to a terminal, text that runs the other way, characters without a width, other ends of lines."""
    assert ["a control character"] == reasons(kernel(f"# {chr(number)} x"))


@pytest.mark.parametrize("line", ["# vim: set fileencoding=utf-7 :", "# -*- coding: latin-1 -*-"])
def test_a_declared_encoding_is_refused(line: str) -> None:
    """The file would be read from disk as another text."""
    assert ["a comment that declares an encoding"] == reasons(f"{line}\n{kernel()}")
    assert ["a comment that declares an encoding"] == reasons(f"# a kernel\n{line}\n{kernel()}")

"""The text of an attention kernel: templates filled with what a problem fixes, and the host function.

A size or stride that is a number becomes a constant of the file; one that depends on the workload's symbols is worked out
by the host function and passed. A template's line that ends in `#if NAME` stays where the flag holds (`#if !NAME`: where it
does not).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from accelopt_backends.loops.attention_problem import Problem
from accelopt_backends.triton.attention_mask import seen
from accelopt_backends.triton.source import POINTERS
from accelopt_compile.records import Workload

ELEMENTS = {"f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16"}
_PRECISIONS = {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}
_TYPES = {short: pointer for pointer, short in POINTERS.items()}
_LETTERS = {"mask": "m", "out": "o", "lse": "l", "grad": "g"}
_IF = re.compile(r"  #if (!?)(\w+)$")
_OPERANDS = ("grad", "q", "k", "v", "mask", "out", "lse", "dq", "dk", "dv")

# What each device function takes, in this order.
ATTEND = ("q", "k", "v", "mask", "out", "lse")
ATTEND_PART = ("q", "k", "v", "mask", "parts", "tops", "totals")
JOIN = ("parts", "tops", "totals", "out", "lse")
PRODUCTS = ("out", "grad", "deltas")
KEY_GRADIENTS = ("grad", "q", "k", "v", "lse", "deltas", "mask", "dk", "dv")
QUERY_GRADIENTS = ("grad", "q", "k", "v", "lse", "deltas", "mask", "dq")

_WIDTH = 128
JOINED = 16
"""Rows of a program that only joins or sums what others left."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the text calls things: `tensors` maps a pointer's name to the host's (in0, out0), `constants` and `passed` the
    sizes and strides by name; `flags` are the template's conditions that hold."""

    tensors: Mapping[str, str]
    constants: Mapping[str, str]
    passed: Mapping[str, str]
    flags: frozenset[str]

    def pointers(self, *wanted: str) -> str:
        """Those of `wanted` that there are, and what a made mask reads where the mask is among them."""
        found = [name for name in wanted if name in self.tensors]
        if "mask" in wanted:
            found += [name for name in self.tensors if name.startswith("given")]
        return ", ".join(found)


def names_of(workload: Workload, problem: Problem, split: bool) -> Names:
    """The names of a problem's tensors, sizes, strides and flags."""
    inputs = len(workload.inputs)

    def host_name(number: int) -> str:
        return f"in{number}" if number < inputs else f"out{number - inputs}"

    tensors = {name: host_name(problem.tensors[name].number) for name in _OPERANDS if name in problem.tensors}
    flags: set[str] = {name for name in ("lse", "dq", "dk", "dv") if name in tensors}
    if problem.made is not None:
        given = seen(problem.made.condition)[1]
        tensors |= {f"given{number}": f"in{number}" for number in given}
    symbols = set()
    if problem.made is not None:  # its condition is written over the workload's symbols
        symbols = set(re.findall(r"\w+", seen(problem.made.condition)[0])) & set(workload.symbols)
    scratch = ("deltas",) if problem.backward else ("parts", "tops", "totals") if split else ()
    tensors |= {name: name for name in scratch}
    sizes = dict(problem.sizes) | dict(problem.strides)
    sizes |= {_LETTERS.get(n, n) + "0": p.offset for n, p in problem.tensors.items()}
    flags |= {"kept"} if problem.mask == "b8" else {"added"} if problem.mask else set()
    flags |= {"causal"} if problem.causal else set()
    flags |= {"negative"} if problem.scale < 0 and not problem.backward else set()
    flags |= {"padded"} if _padded(problem.dim) != problem.dim else set()
    flags |= {"split"} if split else set()
    return Names(
        tensors=tensors,
        constants={name: str(size.static) for name, size in sizes.items() if size.static is not None},
        passed={name: size.text for name, size in sizes.items() if size.static is None} | {s: s for s in sorted(symbols)},
        flags=frozenset(flags),
    )


def kept(parts: Sequence[str], flags: frozenset[str]) -> str:
    """The templates, one after the other, without the lines whose condition does not hold."""
    lines = []
    for line in "\n\n".join(_template(part) for part in parts).splitlines():
        match = _IF.search(line)
        if match is None or (match[2] in flags) is not bool(match[1]):
            lines.append(line[: match.start()] if match else line)
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def _template(name: str) -> str:
    return Path(__file__).with_name(f"attention_{name}.py.tmpl").read_text(encoding="utf-8")


def tokens(text: str, workload: Workload, problem: Problem, names: Names) -> str:
    """The device functions with a head of constants, the template's words in capitals replaced."""
    condition = ""
    if problem.made is not None:
        condition = seen(problem.made.condition)[0]
    elif problem.mask == "b8":
        condition = f"({_MASK_LOAD.format(other=0)} != 0)"
    keep = condition if problem.mask_keeps else f"({condition} == 0)"
    words = {
        "LOADED_MASK": f"bias = {_MASK_LOAD.format(other=0.0)}.to(tl.float32)",
        "SEEN": keep,
        "KEY_POINTERS": names.pointers("k", "v", "mask"),
        "MASK_POINTERS": names.pointers("mask"),
        "RESULTS": names.pointers("out", "lse"),
        "ATTEND_POINTERS": names.pointers(*(ATTEND_PART if "split" in names.flags else ATTEND)),
        "JOIN_POINTERS": names.pointers(*JOIN),
        "KEY_GRADIENT_POINTERS": names.pointers(*KEY_GRADIENTS),
        "QUERY_GRADIENT_POINTERS": names.pointers(*QUERY_GRADIENTS),
        "SIZES": ", ".join(names.passed),
        "ELEMENT": ELEMENTS[problem.dtype],
        "PRECISION": _precision(workload, problem),
    }
    for word in sorted(words, key=len, reverse=True):
        pattern = rf"\b{word}\b" if words[word] else rf"\b{word}\b(, )?"
        text = re.sub(pattern, lambda _, word=word: words[word], text)  # type: ignore[misc]
    return _head(problem, names) + wrapped(text.replace(", )", ")").replace(",,", ","))


_MASK_LOAD = (
    "tl.load(mask + m0 + b * mb + (h * mh + i.to(tl.int64) * ms)[:, None] + j.to(tl.int64)[None, :] * mk, "
    "mask=inside[:, None] & near[None, :], other={other})"
)


def _padded(dim: int) -> int:
    return max(16, 1 << (dim - 1).bit_length())


def _precision(workload: Workload, problem: Problem) -> str:
    """How fp32 is multiplied: as the workload's numerics allow."""
    chosen = dict(workload.numerics).get("float32_matmul_precision", "highest")
    return _PRECISIONS.get(chosen, "ieee") if problem.dtype == "f32" else "ieee"


def _head(problem: Problem, names: Names) -> str:
    scale = problem.scale if problem.backward else abs(problem.scale)
    added = "added" in names.flags
    log2e = 1.0 / math.log(2.0)
    constants: dict[str, str] = {"DIM": str(problem.dim), "BLOCK_D": str(_padded(problem.dim)), "SCALE": repr(scale)}
    if not problem.backward:
        constants["FACTOR"] = repr(log2e if added else scale * log2e)
        constants["TOP_SCALE"] = repr(1.0 if added else scale)
    what = "gradients of attention" if problem.backward else "attention: out = softmax(q k^T * scale + mask) v"
    lines = [f'"""{what[0].upper()}{what[1:]}, for every batch and head. Written by the seed."""', "", "import triton"]
    lines += ["import triton.language as tl", ""]
    lines += [f"{name} = tl.constexpr({value})" for name, value in (constants | dict(names.constants)).items()]
    return "\n".join(lines) + "\n\n\n"


# ---------------------------------------------------------------- the host function


def host(workload: Workload, problem: Problem, names: Names, tunables: Mapping[str, tuple[int, ...]]) -> str:
    """`accelopt_kernel`: sizes and strides from the symbols, scratch, launches."""
    parameters = [f'in{n}: "{_TYPES[s.dtype]}"' for n, s in enumerate(workload.inputs)]
    parameters += [f'out{n}: "{_TYPES[s.dtype]}"' for n, s in enumerate(workload.output_specs)]
    parameters += [f'{symbol}: "i64"' for symbol in workload.symbols]
    chosen = [f"{name}={values!r}" for name, values in tunables.items()]
    lines = ["", "", "def accelopt_kernel(", f"    {', '.join(parameters)}, *,", f"    {', '.join(chosen)},", "):"]
    values = {name: names.constants.get(name, name) for name in ("batch", "kv_heads", "group", "queries", "keys")}
    body = [f"{name} = {text}" for name, text in names.passed.items() if name != text]
    body += [f"pairs = {values['batch']} * {values['kv_heads']}", f"rows = {values['queries']} * {values['group']}"]
    body += _backward_steps(names, values["keys"]) if problem.backward else _forward_steps(problem, names)
    return wrapped("\n".join(lines + [f"    {line}" for line in body]) + "\n")


def wrapped(text: str) -> str:
    """Lines of calls broken at commas; each stands within parentheses."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        while len(line) > _WIDTH and (at := line.rfind(", ", len(indent), _WIDTH)) > 0:
            lines.append(line[: at + 1])
            line = indent + line[at + 2 :]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _launch(function: str, grid: str, names: Names, wanted: Sequence[str], constants: str) -> str:
    given = [names.tensors[p] for p in names.pointers(*wanted).split(", ")]
    return f"{function}[({grid},)]({', '.join([*given, *names.passed])}, {constants})"


def _forward_steps(problem: Problem, names: Names) -> list[str]:
    blocks = "BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, WIDE=INTERPRETED, num_warps=WARPS, num_stages=STAGES"
    lines = ["if pairs * rows == 0:", "    return"]
    if "split" not in names.flags:
        return [*lines, _launch("attend", "triton.cdiv(rows, BLOCK_M) * pairs", names, ATTEND, blocks)]
    return [
        *lines,
        f'parts = scratch("fp32", SPLITS * pairs * rows * {problem.dim})',
        'tops = scratch("fp32", SPLITS * pairs * rows)',
        'totals = scratch("fp32", SPLITS * pairs * rows)',
        _launch("attend", "triton.cdiv(rows, BLOCK_M) * pairs, SPLITS", names, ATTEND_PART, f"SPLITS=SPLITS, {blocks}"),
        _launch("join", f"triton.cdiv(rows, {JOINED}) * pairs", names, JOIN, f"SPLITS=SPLITS, BLOCK_R={JOINED}, num_warps=4"),
    ]


def _backward_steps(names: Names, keys: str) -> list[str]:
    lines = [
        'deltas = scratch("fp32", pairs * rows)',
        _launch("products", f"triton.cdiv(rows, {JOINED}) * pairs", names, PRODUCTS, f"BLOCK_R={JOINED}, num_warps=4"),
    ]
    for function, wanted, grid, m, n in (
        ("key_gradients", KEY_GRADIENTS, f"triton.cdiv({keys}, KEYS_N) * pairs", "KEYS_M", "KEYS_N"),
        ("query_gradients", QUERY_GRADIENTS, "triton.cdiv(rows, QUERIES_M) * pairs", "QUERIES_M", "QUERIES_N"),
    ):
        if names.flags & ({"dk", "dv"} if function == "key_gradients" else {"dq"}):
            options = f"BLOCK_M={m}, BLOCK_N={n}, WIDE=INTERPRETED, num_warps=WARPS, num_stages=STAGES"
            lines.append(_launch(function, grid, names, wanted, options))
    return lines

"""Generic mistakes in C++ kernel text: each operator says where in a source it applies and what it makes of a line.

Operators work on single lines of the part that a kernel's author writes, and on the library functions it calls. A mutant is
one change. The choice is a function of the source and the seed, taken from all operators in turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ENTRY = 'extern "C" int accelopt_kernel'
HELPERS = """\
INLINE vf cut_(vf x) { return (vf)((vi)x & ~0xffff); }  // the bits that bfloat16 keeps
INLINE float cut_(float x) { return cut_(all(x))[0]; }
template <class V> INLINE V cut_(V x) { return x; }
INLINE vf lane_(vf x) { x[3] *= 1.03f; return x; }
INLINE vl lane_(vl x) { x[3] += 1; return x; }
template <class V> INLINE V lane_(V x) { return x; }
INLINE vf scaled_(vf x, float by) { return x * by; }
template <class V> INLINE V scaled_(V x, float by) { return x; }
INLINE vf rounded_(vf x) { return (vf)((vi)x & ~1); }
"""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One changed line (numbers from 1) of a source."""

    operator: str
    line: int
    before: str
    after: str
    text: str


Change = Callable[[str], Iterator[str]]


def _each(pattern: str, *replacements: str | Callable[[re.Match[str]], str]) -> Change:
    """Replace one match at a time by each replacement."""
    compiled = re.compile(pattern)

    def change(line: str) -> Iterator[str]:
        for match in compiled.finditer(line):
            for replacement in replacements:
                new = replacement(match) if callable(replacement) else match.expand(replacement)
                yield line[: match.start()] + new + line[match.end() :]

    return change


def _number(match: re.Match[str]) -> str:
    return f"{float(match[1]) * 1.01:.9g}f"


def _dropped(line: str) -> Iterator[str]:
    """The whole statement."""
    if re.fullmatch(r"\s*(store|put\w*|stream|scatter|acc\w*|[a-z]\w*(\[[^\]]*\])?\s*[-+*]?=)[^{}]*;", line):
        yield "  ;"


def _early(line: str) -> Iterator[str]:
    if re.match(r"  // nest \d+", line):
        yield line + "\n  if (threads > 0) return 0;"


WORD = r"[A-Za-z_]\w*(?:\[\w+\])?"
STORE = r"\b(store|stream)\(b, ([^,;]+), ((?:[^,()]|\((?:[^()]|\([^()]*\))*\))+), left"
OPERATORS: dict[str, Change] = {
    "a constant off by 1 %": _each(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)f?\b", _number),
    "a constant dropped": _each(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)f?\b", "0.0f"),
    "a bound shifted": _each(r" (<|>|<=|>=) ", lambda m: {"<": " <= ", ">": " >= ", "<=": " < ", ">=": " > "}[m[1]]),
    "an integer one more": _each(r"(?<![\w.])(?<!unroll )(\d+)(?![\w.])", lambda m: str(int(m[1]) + 1)),
    "an integer one less": _each(r"(?<![\w.])(?<!unroll )([1-9]\d*)(?![\w.])", lambda m: str(int(m[1]) - 1)),
    "operands swapped": _each(rf"(all\(\w+\)|{WORD}) ([-/]) (all\(\w+\)|{WORD})", r"\3 \2 \1"),
    "minus for plus": _each(r" \+ ", " - "),
    "plus for minus": _each(r" - ", " + "),
    "plus for times": _each(r" \* ", " + "),
    "times for divided": _each(r" / ", " * "),
    "a compound assignment": _each(r" ([-+*])= ", lambda m: {"+": " = ", "-": " += ", "*": " += "}[m[1]]),
    "a statement dropped": _dropped,
    "a start value": _each(r"= (0\.0f|0)([;,}])", r"= 1.0f\2", r"= -3e38f\2"),
    "infinity for zero": _each(r"-?__builtin_inff?\(\)", "0.0f"),
    "another function": _each(
        r"\b(maximum|minimum|largest|smallest|above|below|exp_|rsqrt_|sqrt_|tanh_|erf_|log_|abs_|sum|lt|le|gt|ge|eq|ne)\(",
        lambda m: OTHER[m[1]] + "(",
    ),
    "a sum kept in bfloat16": _each(rf"({WORD}) = (\1 \+ [^;]+|__builtin_fma\w*\([^;]+);", r"\1 = cut_(\2);"),
    "a sum kept in bfloat16 (2)": _each(rf"({WORD}) \+= ([^;]+);", r"\1 = cut_(\1 + \2);"),
    "right to three digits": _each(STORE, r"\1(b, \2, scaled_(\3, 1.001f), left"),
    "right to two digits": _each(STORE, r"\1(b, \2, scaled_(\3, 0.99f), left"),
    "of the wrong sign": _each(STORE, r"\1(b, \2, -(\3), left"),
    "truncated to bfloat16": _each(STORE, r"\1(b, \2, cut_(\3), left"),
    "one lane off": _each(STORE, r"\1(b, \2, lane_(\3), left"),
    "one place off": _each(STORE, r"\1(b, \2, k == 32 ? lane_(\3) : (\3), left"),
    "one place not written": _each(rf"({STORE}\S*\);)", r"if (k != 48) \1"),
    "the tail dropped": _each(rf"({STORE}\S*\);)", r"if (!b.tail) \1"),
    "the tail one short": _each(r", left\b", ", left - 1"),
    "slices share memory": _each(r"\bslice\b", "0"),
    "another thread's share": _each(r"\bomp_get_thread_num\(\)", "0"),
    "another pointer": _each(r"\bp(\d+)\b(?! =)", lambda m: f"p{int(m[1]) + 1}", lambda m: f"p{int(m[1]) - 1}"),
    "another value": _each(r"\bt(\d+)\b(?! =)", lambda m: f"t{int(m[1]) + 1}", lambda m: f"t{int(m[1]) - 1}"),
    "another input": _each(r"\bin(\d+)\b(?! =)", lambda m: f"in{int(m[1]) + 1}", lambda m: f"in{max(int(m[1]) - 1, 0)}"),
    "a returned early": _early,
}
OTHER = {
    "maximum": "minimum", "minimum": "maximum", "largest": "smallest", "smallest": "largest", "above": "below",
    "below": "above", "exp_": "tanh_", "tanh_": "exp_", "rsqrt_": "sqrt_", "sqrt_": "rsqrt_", "erf_": "tanh_",
    "log_": "sqrt_", "abs_": "relu_", "sum": "largest", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
}  # fmt: skip


def mutants(text: str, count: int, seed: int) -> list[Mutant]:
    """Up to `count` different mutants of a source, operators in turn."""
    lines = text.split("\n")
    entry = next(k for k, line in enumerate(lines) if line.startswith(ENTRY))
    body = [*_written(lines, entry), *_called(lines, entry)]
    rng = random.Random(f"{seed} {len(text)}")
    sites: dict[str, list[tuple[int, str]]] = {}
    coarse = bool(re.search(r"\bbf16\* const out\d", text))
    for name, change in OPERATORS.items():
        if coarse and name == "right to three digits":  # a quarter of a unit of bfloat16
            continue
        found = [(k, new) for k in body for new in change(lines[k]) if new != lines[k] and "Pragma" not in new[:20]]
        rng.shuffle(found)
        sites[name] = found
    chosen: dict[str, Mutant] = {}
    while len(chosen) < count and any(sites.values()):
        for name, found in sites.items():
            if found and len(chosen) < count:
                k, new = found.pop()
                changed = "\n".join([*lines[:k], new, *lines[k + 1 :]])
                changed = changed if not re.search(r"\b(cut_|lane_|scaled_)\(", new) else _with_helpers(changed)
                one = Mutant(operator=name, line=k + 1, before=lines[k].strip(), after=new.strip(), text=changed)
                chosen.setdefault(changed, one)
    return list(chosen.values())


def _with_helpers(text: str) -> str:
    at = text.index(ENTRY)
    return text[:at] + HELPERS + text[at:]


def _code(line: str) -> bool:
    """Whether a line computes; how work is cut for threads and what is asked for ahead of time does not."""
    computes = bool(line.strip()) and not line.lstrip().startswith(("//", "#", "typedef", "const int64_t s", "extern"))
    return computes and not re.search(r"\bslices\(|\bahead<|GRAIN|PREFETCH|__builtin_prefetch", line)


def _written(lines: list[str], entry: int) -> list[int]:
    """Lines of the entry point, without the unpacking of its arguments and the estimate of a variance's shift: any is right."""
    kept, shift = [], False
    for k in range(entry + 1, len(lines)):
        shift = shift or "const int64_t head" in lines[k]
        if _code(lines[k]) and "tensors[" not in lines[k] and not shift:
            kept.append(k)
        shift = shift and "/ head" not in lines[k]
    return kept


def _called(lines: list[str], entry: int) -> list[int]:
    """Lines of the functions above the entry point that it calls by name, as far as they are arithmetic on vectors."""
    called = set(re.findall(r"\b(\w+)(?:<\w+>)?\(", "\n".join(lines[entry:])))
    for line in lines[:entry]:
        head = re.match(r"(?:template.*)?INLINE \w+ (\w+)\(", line)
        if head and head[1] in called:
            called |= set(re.findall(r"\b(\w+_)\(", line))
    kept, inside, other = [], False, False
    for k, line in enumerate(lines[:entry]):
        other = (other or line.startswith("#else")) and not line.startswith("#endif")  # for machines without AVX-512
        if other:
            continue
        head = re.match(r"(?:template.*)?(?:INLINE|static) \w+ (\w+)\(.*\bv[fil]\b", line)
        if head:
            inside = head[1] in called and (head[1].endswith("_") or head[1] in ("sum", "total", "largest", "keep"))
        if inside and _code(line) and not head:
            kept.append(k)
        if line.startswith("}"):
            inside = False
    return kept

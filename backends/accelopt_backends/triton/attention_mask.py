"""A mask that the region computes, inside the kernel: its condition as text, and the keys that it can leave.

Rows have `b` (a number), `h` and `i` (blocks of rows), keys have `j`; positions outside the block's `inside` and `near` are
not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from accelopt_backends.loops.attention_mask import Call, Condition, Element, Number
from accelopt_backends.loops.attention_views import ZERO, Size

_INDEX = {"b": "b", "h": "h[:, None]", "i": "i.to(tl.int64)[:, None]", "j": "j.to(tl.int64)[None, :]"}
_LOGICAL = {"&&": "&", "||": "|"}


def seen(condition: Condition) -> tuple[str, tuple[int, ...]]:
    """(the condition of a block of rows and keys, the inputs that it reads as `given<number>`)."""
    found: set[int] = set()
    return _text(condition, found), tuple(sorted(found))


def _text(part: Condition, found: set[int]) -> str:
    match part:
        case Number(value=Size() as size):
            return size.text
        case Number(value=value):
            return str(value)
        case Element():
            return _element(part, found)
        case Call(op="not", args=(a,)):
            return f"({_text(a, found)} == 0)"
        case Call(op="nonzero", args=(a,)):
            return f"({_text(a, found)} != 0)"
        case Call(op="&&" | "||" as op, args=(a, b)):
            return f"(({_text(a, found)} != 0) {_LOGICAL[op]} ({_text(b, found)} != 0))"
        case Call(op=op, args=(a, b)):
            return f"({_text(a, found)} {op} {_text(b, found)})"
    raise AssertionError(part)


def _element(part: Element, found: set[int]) -> str:
    terms = [part.offset.text] if part.offset.static != 0 else []
    terms += [f"{_INDEX[name]} * {stride.text}" for name, stride in part.strides]
    place = " + ".join(terms) or "0"
    if part.source is None:
        return f"({place})"
    found.add(part.source)
    used = {name for name, _ in part.strides}
    held = (["inside[:, None]"] if used & {"h", "i"} else []) + (["near[None, :]"] if "j" in used else [])
    mask = f", mask={' & '.join(held)}, other=0" if held else ""
    return f"tl.load(given{part.source} + {place}{mask})"


# ---------------------------------------------------------------- which keys any row of a block can see


@dataclass(frozen=True)
class _Line:
    """row * i + key * j + const."""

    row: int
    key: int
    const: tuple[str, ...]


def bounds(condition: Condition) -> list[str]:
    """Statements that narrow [low, high) of a block whose queries are first_query .. last_query, from comparisons of
    positions that the condition demands."""
    match condition:
        case Call(op="&" | "&&", args=(a, b)):
            return [*bounds(a), *bounds(b)]
        case Call(op="<" | "<=" | ">" | ">=" as op, args=(a, b)):
            return _bound(op, a, b)
    return []


def _bound(op: str, a: Condition, b: Condition) -> list[str]:
    if op in (">", ">="):
        op, a, b = op.replace(">", "<"), b, a
    left, right = _line(a), _line(b)
    if left is None or right is None:
        return []
    # 0 <= (right - left) - strict, a line in i and j
    row, key = right.row - left.row, right.key - left.key
    const = " + ".join([*right.const, *(f"-({c})" for c in left.const), *(["-1"] if op == "<" else [])]) or "0"
    if (row, key) == (1, -1):
        return [f"high = tl.minimum(high, last_query + ({const}) + 1)"]
    if (row, key) == (-1, 1):
        return [f"low = tl.maximum(low, first_query - ({const}))"]
    return []


def _line(part: Condition) -> _Line | None:
    match part:
        case Number(value=Size() as size):
            return _Line(0, 0, (size.text,))
        case Number(value=value):
            return _Line(0, 0, (str(value),))
        case Element(source=None, offset=offset, strides=strides):
            steps = {name: stride.static for name, stride in strides}
            if set(steps) - {"i", "j"} or None in steps.values():
                return None
            const = () if offset == ZERO else (offset.text,)
            return _Line(steps.get("i") or 0, steps.get("j") or 0, const)
        case Call(op="+" | "-" as op, args=(a, b)):
            left, right = _line(a), _line(b)
            if left is None or right is None:
                return None
            if op == "+":
                return _Line(left.row + right.row, left.key + right.key, left.const + right.const)
            negative = tuple(f"-({c})" for c in right.const)
            return _Line(left.row - right.row, left.key - right.key, left.const + negative)
    return None

"""A mask that the region computes, inside the kernel: its condition as text.

Rows have `b` (a number), `h` and `i` (blocks of rows), keys have `j`; positions outside the block's `inside` and `near` are
not read. Keys that no row of a block can see are read all the same: eager adds the mask to their scores, and one that is no
number stays so.
"""

from __future__ import annotations

from accelopt_backends.loops.attention_mask import Call, Condition, Element, Number
from accelopt_backends.loops.attention_views import Size

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

"""C++ text of what an attention problem fixes: pointers, sizes, strides, and the condition of a mask that is made."""

from __future__ import annotations

from accelopt_backends.loops.attention_mask import Call, Condition, Element, MadeMask, Number
from accelopt_backends.loops.attention_problem import Problem
from accelopt_backends.loops.attention_views import Size

C_TYPES = {"f32": "float", "bf16": "bf16", "f16": "f16", "b8": "b8"}
_INTEGERS = {"b8": "unsigned char", "i64": "long long", "i32": "int", "u8": "unsigned char"}
_SIZES = ("batch", "kv_heads", "group", "queries", "keys")


def size_text(size: Size) -> str:
    """Sizes are not negative, so that C++ divides them as a workload does."""
    return size.text.replace("//", "/")


def fields(problem: Problem) -> dict[str, str]:
    """The sizes and strides of struct Problem, by their names there."""
    none = dict.fromkeys(("lb", "lh", "ls"), Size.number(0))
    before = {name: size for name, size in problem.strides.items() if name[0] not in "ol"}
    given = {name: problem.sizes[name] for name in _SIZES} | before | none | dict(problem.strides)
    return {name: size_text(size) for name, size in given.items()}


def pointers(problem: Problem) -> list[tuple[str, str]]:
    """(field of struct Problem, text) of each tensor."""
    types = {"q": "const T*", "k": "const T*", "v": "const T*", "mask": "const MASK_T*", "out": "T*", "lse": "float*"}
    found = []
    for name, ctype in types.items():
        if (place := problem.tensors.get(name)) is not None:
            offset = size_text(place.offset)
            found.append((name, f"({ctype})tensors[{place.number}]" + (f" + {offset}" if offset != "0" else "")))
    return found


def made_mask(made: MadeMask) -> tuple[str, tuple[str, ...]]:
    """(the condition at (b, h, i, j), the mask's four sizes)."""
    return _condition(made.condition), tuple(size_text(size) for size in made.sizes)


def _condition(part: Condition) -> str:
    match part:
        case Number(value=Size() as size):
            return f"(i64){size_text(size)}"
        case Number(value=value):
            return str(value)
        case Element():
            return _element(part)
        case Call(op="not", args=(a,)):
            return f"!({_condition(a)})"
        case Call(op="nonzero", args=(a,)):
            return f"(({_condition(a)}) != 0)"
        case Call(op=op, args=(a, b)):
            return f"({_condition(a)} {op} {_condition(b)})"
    raise AssertionError(part)


def _element(part: Element) -> str:
    terms = [size_text(part.offset)] if part.offset.static != 0 else []
    terms += [f"{name}*{size_text(stride)}" for name, stride in part.strides]
    place = " + ".join(terms) or "0"
    return f"({place})" if part.source is None else f"((const {_INTEGERS[part.dtype]}*)tensors[{part.source}])[{place}]"

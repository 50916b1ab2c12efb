"""C++ text of element-wise operators, and which prelude sections it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.values import NARROW

# name -> (text with {0}, {1}, {2}; prelude section or ""; costs as much as a division or more)
POINT: dict[str, tuple[str, str, bool]] = {
    "id": ("{0}", "", False),
    "add": ("{0} + {1}", "", False),
    "sub": ("{0} - {1}", "", False),
    "mul": ("{0} * {1}", "", False),
    "div": ("{0} / {1}", "", True),
    "fma": ("{0} * {1} + {2}", "", False),
    "neg": ("-{0}", "", False),
    "square": ("{0} * {0}", "", False),
    "abs": ("abs_({0})", "", False),
    "relu": ("relu_({0})", "", False),
    "reciprocal": ("1.0f / {0}", "", True),
    "sqrt": ("sqrt_({0})", "", True),
    "rsqrt": ("rsqrt_({0})", "", True),
    "exp": ("exp_({0})", "exp", True),
    "exp_up_to_0": ("exp_up_to_0({0})", "exp", True),
    "logistic": ("logistic({0}, {1})", "sigmoid", True),
    "tanh_plus_one": ("tanh_plus_one({0})", "sigmoid", True),
    "log": ("log_({0})", "log", True),
    "log1p": ("log1p_({0})", "log1p", True),
    "log2": ("log2_({0})", "log2", True),
    "sigmoid": ("sigmoid_({0})", "sigmoid", True),
    "tanh": ("tanh_({0})", "tanh", True),
    "erf": ("erf_({0})", "erf", True),
    "sin": ("sin_({0})", "sincos", True),
    "cos": ("cos_({0})", "sincos", True),
    "expm1": ("expm1_({0})", "lanes", True),
    "exp2": ("exp2_({0})", "lanes", True),
    "floor": ("floor_({0})", "lanes", False),
    "ceil": ("ceil_({0})", "lanes", False),
    "trunc": ("trunc_({0})", "lanes", False),
    "round": ("round_({0})", "lanes", False),
    "pow": ("pow_({0}, {1})", "lanes", True),
    "atan2": ("atan2_({0}, {1})", "lanes", True),
    "maximum": ("maximum({0}, {1})", "", False),
    "minimum": ("minimum({0}, {1})", "", False),
    "isnan": ("ne({0}, {0})", "", False),
    "isinf": ("eq(abs_({0}), {inf})", "", False),
    "sign": ("where(gt({0}, {zero}), {one}, where(lt({0}, {zero}), -{one}, {zero}))", "", False),
    "eq": ("eq({0}, {1})", "", False),
    "ne": ("ne({0}, {1})", "", False),
    "lt": ("lt({0}, {1})", "", False),
    "le": ("le({0}, {1})", "", False),
    "gt": ("gt({0}, {1})", "", False),
    "ge": ("ge({0}, {1})", "", False),
    "and": ("both({0}, {1})", "", False),
    "or": ("either({0}, {1})", "", False),
    "xor": ("ne({0}, {1})", "", False),
    "not": ("flip({0})", "", False),
    "where": ("where({0}, {1}, {2})", "", False),
    "to_f": ("to_f({0})", "", False),
    "to_l": ("to_l({0})", "", False),
    **{f"wrap_{kind}": (f"wrap_{kind}({{0}})", "wrap", False) for kind in NARROW},
    "cut_i32": ("cut_i32({0})", "wrap", False),
    "to_b": ("to_b({0})", "", False),
}

SCALAR = {"f": "float", "l": "int64_t", "b": "bool"}
VECTOR = {"f": "vf", "l": "vl", "b": "vi"}
STORED = {
    "f32": "float",
    "bf16": "bf16",
    "f16": "f16",
    "i64": "int64_t",
    "i32": "int",
    "i16": "short",
    "i8": "signed char",
    "u8": "unsigned char",
    "b8": "b8",
}


def literal(value: object, lane: str) -> str:
    """A constant of a lane as C++ text; a string is an expression over sizes."""
    if isinstance(value, str):
        return f"({SCALAR[lane]})({value})"
    if lane == "b":
        return "true" if value else "false"
    if lane == "l":
        return f"(int64_t){int(value)}"  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return '__builtin_nanf("")'
    if math.isinf(number) or abs(number) > 3.4028235677973366e38:
        return "-__builtin_inff()" if number < 0 else "__builtin_inff()"
    text = repr(number)
    text = text if any(ch in text for ch in ".e") else text + ".0"
    return f"{text}f" if number >= 0 and math.copysign(1, number) > 0 else f"({text}f)"


def point_text(op: str, args: list[str], lane: str) -> tuple[str, str, bool]:
    """(text, prelude section, heavy) of one operator on operands that are all scalars or all vectors."""
    entry = POINT.get(op)
    if entry is None:
        raise Unsupported(f"operator {op}")
    text, section, heavy = entry
    zero = {"f": "0.0f", "l": "(int64_t)0", "b": "false"}[lane]
    one = {"f": "1.0f", "l": "(int64_t)1", "b": "true"}[lane]
    extra = {
        "zero": f"all({zero})" if "{zero}" in text else "",
        "one": f"all({one})" if "{one}" in text else "",
        "inf": "all(__builtin_inff())",
    }
    return text.format(*args, **extra), section, heavy


@lru_cache(maxsize=1)
def sections() -> Mapping[str, tuple[tuple[str, ...], str]]:
    """Prelude sections: name -> (sections it needs, text)."""
    text = resources.files("accelopt_backends.cpp").joinpath("prelude.cpp.txt").read_text()
    result = {}
    for chunk in text.split("//@ ")[1:]:
        head, body = chunk.split("\n", 1)
        name, *needs = head.split()
        result[name] = (tuple(needs), body)
    return result


def prelude(names: set[str]) -> str:
    """The prelude text with the named sections and what they need, in file order."""
    wanted = closure(names)
    return "".join(body for name, (_, body) in sections().items() if name in wanted)


def closure(names: set[str]) -> set[str]:
    """The named sections and what they need."""
    table = sections()
    wanted = {"base"}
    stack = list(names - {""})
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack.extend(table[name][0])
    return wanted

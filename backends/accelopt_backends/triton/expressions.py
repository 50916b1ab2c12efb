"""Triton text of element-wise operators and constants, and the device functions that they need."""

from __future__ import annotations

import math

from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.values import NARROW

POINT: dict[str, str] = {
    "id": "{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "fma": "{0} * {1} + {2}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "abs": "tl.abs({0})",
    "relu": "largest({0}, {zero})",
    "reciprocal": "1.0 / {0}",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "1.0 / tl.sqrt_rn({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log1p": "log1p({0})",
    "expm1": "expm1({0})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-{0}))",
    "tanh": "tanh({0})",
    "erf": "tl.erf({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))",
    "round": "nearest({0})",
    "maximum": "largest({0}, {1})",
    "minimum": "smallest({0}, {1})",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "sign": "tl.where({0} > 0, {one}, tl.where({0} < 0, -{one}, {zero}))",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "{0} == 0",
    "bitand": "{0} & {1}",
    "bitor": "{0} | {1}",
    "shr": "{0} >> {1}",
    "where": "tl.where({0}, {1}, {2})",
    "to_f": "{0}.to(tl.float32)",
    "to_l": "{0}.to(tl.int64)",
    "cut_i32": "{0}",  # a GPU's own conversion does not wrap either
    "to_b": "{0} != 0",
}

LANE = {"f": "tl.float32", "l": "tl.int64", "b": "tl.int1"}
"""The arithmetic type of each lane."""

STORED = {
    "f64": "fp64",
    "f32": "fp32",
    "bf16": "bf16",
    "f16": "fp16",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "u8",
    "b8": "i1",
}
"""Pointer types by our short names, without the star."""

ELEMENT = {
    "f32": "tl.float32",
    "bf16": "tl.bfloat16",
    "f16": "tl.float16",
    "i64": "tl.int64",
    "i32": "tl.int32",
    "i16": "tl.int16",
    "i8": "tl.int8",
    "u8": "tl.uint8",
    "b8": "tl.int1",
}

POINT |= {f"wrap_{kind}": f"({{0}}).to({ELEMENT[kind]}).to(tl.int64)" for kind in NARROW}

LIBRARY: dict[str, str] = {
    "largest": '''
@triton.jit
def largest(x, y):
    """The larger; NaN where one is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
''',
    "smallest": '''
@triton.jit
def smallest(x, y):
    """The smaller; NaN where one is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
''',
    "log1p": '''
@triton.jit
def log1p(x):
    """log(1 + x); the rounding of 1 + x cancels in x / ((1 + x) - 1)."""
    u = 1.0 + x
    exact = (u == 1.0) | (u == float("inf"))
    return tl.where(exact, x, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))
''',
    "expm1": '''
@triton.jit
def expm1(x):
    """exp(x) - 1. Near zero the rounding of exp(x) cancels in x / log(exp(x)); elsewhere nothing is lost."""
    u = tl.exp(x)
    near = (tl.abs(x) < 1.0) & (u != 1.0)
    inner = (u - 1.0) * (x / tl.where(near, tl.log(tl.where(near, u, 2.0)), 1.0))
    return tl.where(near, inner, tl.where(u == 1.0, x, u - 1.0))
''',
    "tanh": '''
@triton.jit
def tanh(x):
    """From expm1, so that small values keep their digits; beyond 10 it is 1 in float32."""
    u = expm1(2.0 * tl.where(x > 10.0, 10.0, tl.where(x < -10.0, -10.0, x)))
    return u / (u + 2.0)
''',
    "nearest": '''
@triton.jit
def nearest(x):
    """Rounded to the nearest integer, ties to the even one."""
    r = tl.floor(x + 0.5)
    tie = (r - x == 0.5) & (tl.floor(r * 0.5) * 2.0 != r)
    return tl.where(tl.abs(x) < 8388608.0, tl.where(tie, r - 1.0, r), x)
''',
    "top": '''
@triton.jit
def top(x, axis: tl.constexpr):
    """The largest along an axis, which stays; NaN where one is (tl.max drops it)."""
    odd = tl.max((x != x).to(tl.int32), axis=axis, keep_dims=True)
    return tl.where(odd != 0, float("nan"), tl.max(x, axis=axis, keep_dims=True))
''',
    "bottom": '''
@triton.jit
def bottom(x, axis: tl.constexpr):
    """The smallest along an axis, which stays; NaN where one is (tl.min drops it)."""
    odd = tl.max((x != x).to(tl.int32), axis=axis, keep_dims=True)
    return tl.where(odd != 0, float("nan"), tl.min(x, axis=axis, keep_dims=True))
''',
    "place": '''
@triton.jit
def place(x, best, k, valid):
    """Where in each row `best` stands first; the first NaN where there is one. [R, 1] from x [R, B], best [R, 1], k [1, B]."""
    hit = valid & ((x == best) | ((best != best) & (x != x)))
    return tl.min(tl.where(hit, k, 2147483647), axis=1, keep_dims=True)
''',
}
"""Device functions of ours: name -> text. `library` adds what one needs of the others."""


def library(text: str) -> str:
    """The device functions that `text` calls, in the order of LIBRARY, with those that they call."""
    needed: set[str] = set()
    pending = [text]
    while pending:
        part = pending.pop()
        for name, body in LIBRARY.items():
            if name not in needed and f"{name}(" in part.replace(f"def {name}(", ""):
                needed.add(name)
                pending.append(body)
    return "\n".join(body for name, body in LIBRARY.items() if name in needed)


def literal(value: object, lane: str) -> str:
    """A constant of a lane as text; a string is an expression over sizes."""
    if isinstance(value, str):
        return f"({value}).to({LANE[lane]})" if any(ch == "s" for ch in value) else f"({value})"
    if lane == "b":
        return "True" if value else "False"
    if lane == "l":
        return str(int(value))  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return 'float("nan")'
    if math.isinf(number) or abs(number) > 3.4028235677973366e38:
        return 'float("-inf")' if number < 0 else 'float("inf")'
    return repr(number) if math.copysign(1, number) > 0 else f"({number!r})"


def point_text(op: str, args: list[str], lane: str) -> str:
    """One operator on operands of `lane`. Raises Unsupported."""
    text = POINT.get(op)
    if text is None:
        raise Unsupported(f"operator {op}")
    if op in ("maximum", "minimum", "relu") and lane != "f":
        text = {"maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})", "relu": "tl.maximum({0}, {zero})"}[op]
    if op in ("isnan", "isinf") and lane != "f":
        raise Unsupported(f"{op} of integers")
    if lane == "b" and op in ("add", "mul", "sub", "neg", "sign", "abs", "square"):
        raise Unsupported(f"{op} of bool")
    return text.format(*args, zero="0.0" if lane == "f" else "0", one="1.0" if lane == "f" else "1")

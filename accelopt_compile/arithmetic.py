"""One spelling for arithmetic.

Exact rewrites: subtraction of a number is addition of its negative, division by a power of two is multiplication, x**2
is x*x, numbers stand on the right, operations that change nothing go.

Rewrites that reorder roundings, each within the error that eager itself makes:
- x**3 is (x*x)*x: two roundings, as ATen's own `pow` does for an exponent of 3.
- erf(x/c) and tanh(x/c) are erf(x*(1/c)): one more rounding of the argument, that is one ulp, and both functions have
  condition number <= 1.
- In `flatten_products`, a chain of k products with a number in it is reordered: any order has a relative error of at
  most k-1 half ulps, so two orders differ by at most k-1 ulps (away from underflow). The order chosen overflows only where
  the product itself does: of two tensors, or of powers of one, with a number up to 1 first and a larger one last.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from accelopt_compile.order import Structure
from accelopt_compile.rewrite import full, scalar
from accelopt_compile.terms import Builder, Out, Spec, Term, map_outs, outs_of, reachable
from accelopt_compile.views import Call, Rule, convert

MUL = "aten.mul.Tensor"
ADD = "aten.add.Tensor"
SMALLEST = 1e-30
"""Numbers whose product is smaller than this, or larger than its reciprocal, stay apart: it may be no float32."""


def add(b: Builder, x: Any, y: Any, spec: Spec) -> Out:
    """x + y; one of them may be a number."""
    x, y = _number_right(x, y, spec)
    if not isinstance(y, Out) and y == 0 and not spec.dtype.is_floating_point and _same(x, spec):
        return x  # type: ignore[no-any-return]
    return b.call(ADD, (x, y), (), (spec,))


def mul(b: Builder, x: Any, y: Any, spec: Spec) -> Out:
    """x * y; one of them may be a number."""
    x, y = _number_right(x, y, spec)
    if not isinstance(y, Out) and y == 1 and _same(x, spec):
        return x  # type: ignore[no-any-return]
    return b.call(MUL, (x, y), (), (spec,))


def _number_right(x: Any, y: Any, spec: Spec) -> tuple[Any, Any]:
    x, y = _as_number(x, y, spec), _as_number(y, x, spec)
    if not isinstance(x, Out):
        x, y = y, x
    return x, y if isinstance(y, Out) else scalar(y, spec.dtype)


def _as_number(arg: Any, other: Any, spec: Spec) -> Any:
    """A constant tensor as a number, where that changes neither dtype nor shape of the result."""
    if not isinstance(arg, Out) or arg.term.op != "aten.full.default" or not isinstance(other, Out):
        return arg
    value = arg.term.args[1]
    alike = other.dtype == arg.dtype == spec.dtype and other.shape == spec.shape and other.term.op != "aten.full.default"
    return value if alike and isinstance(value, int | float) and not isinstance(value, bool) else arg


def _same(x: Any, spec: Spec) -> bool:
    return isinstance(x, Out) and x.spec == spec


def _negative(value: Any) -> Any:
    return -value


def _rule_add(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    if _in_one(c, specs[0]):  # as a subtraction: what adds may change sides later
        return _less(b, c["self"], c["other"], -c["alpha"], specs)
    return add(b, c["self"], _times(b, c["other"], c["alpha"], specs[0]), specs[0])


def _rule_sub(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out | None:
    x, y, spec = c["self"], c["other"], specs[0]
    if _in_one(c, spec):
        return _less(b, x, y, c["alpha"], specs)
    y = _times(b, y, c["alpha"], spec)
    number = _as_number(y, x, spec)
    if not isinstance(number, Out):
        return add(b, x, _negative(scalar(number, spec.dtype)), spec)  # x - 0 is x + -0.0: -0.0 stays
    x = scalar(x, spec.dtype) if not isinstance(x, Out) else x
    return b.call("aten.sub.Tensor", (x, y), (), specs)


def _rule_rsub(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out | None:
    return _rule_sub(b, {"self": c["other"], "other": c["self"], "alpha": c["alpha"]}, specs)


def _in_one(c: Call, spec: Spec) -> bool:
    """Whether the multiple is not rounded, or infinite, before it is added: in 16 bits ATen does both in float32."""
    both = isinstance(c["self"], Out) and isinstance(c["other"], Out)
    return both and c["alpha"] != 1 and spec.dtype in (torch.bfloat16, torch.float16)


def _less(b: Builder, x: Out, y: Out, alpha: float, specs: tuple[Spec, ...]) -> Out:
    kwargs = () if alpha == 1 else (("alpha", scalar(alpha, specs[0].dtype)),)
    return b.call("aten.sub.Tensor", (x, y), kwargs, specs)


def _times(b: Builder, y: Any, alpha: Any, spec: Spec) -> Any:
    """y * alpha, in the dtype of the result: 2 * uint8 200 is 400 beside a float32."""
    alpha = bool(alpha) if spec.dtype is torch.bool else alpha  # a number would make integers of truth values
    if alpha == 1:
        return y
    if not isinstance(y, Out):
        return y * alpha
    y = convert(b, y, spec.dtype)
    return mul(b, y, alpha, y.spec)


def _rule_mul(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
    return mul(b, c["self"], c["other"], specs[0])


def _rule_div(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out | None:
    if c.get("rounding_mode") is not None or not specs[0].dtype.is_floating_point:
        return None
    x, y = c["self"], c["other"]
    number = _as_number(y, x, specs[0])
    if isinstance(x, Out) and isinstance(number, int | float) and number != 0 and math.isfinite(number):
        if _is_power_of_two(number) and _is_normal(1.0 / number, specs[0].dtype):
            return mul(b, x, 1.0 / number, specs[0])
        y = float(number)  # rounded in `flatten_products`; erf and tanh want the reciprocal of the exact number
    x = x if isinstance(x, Out) else scalar(x, specs[0].dtype)
    return b.call("aten.div.Tensor", (x, y), (), specs)


def _is_normal(number: float, dtype: torch.dtype) -> bool:
    """Whether arithmetic of `dtype` has the number in full precision: 1/2**-130 is infinite in float32."""
    return torch.finfo(dtype).tiny <= abs(number) <= torch.finfo(dtype).max


def _rule_pow(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out | None:
    x, exponent = c["self"], c["exponent"]
    if not isinstance(x, Out) or isinstance(exponent, Out) or not _same(x, specs[0]):
        return None
    if exponent == 1:
        return x
    if exponent == 2:
        return mul(b, x, x, specs[0])
    return mul(b, mul(b, x, x, specs[0]), x, specs[0]) if exponent == 3 else None


def _bounded(op: str) -> Rule:
    """erf and tanh, with a division by a number in the argument turned into a product."""

    def rule(b: Builder, c: Call, specs: tuple[Spec, ...]) -> Out:
        x = c["self"]
        divided = x.term.op == "aten.div.Tensor" and isinstance(x.term.args[1], float) and x.term.args[1] != 0
        if divided and _is_normal(1.0 / x.term.args[1], x.dtype):
            x = mul(b, x.term.args[0], 1.0 / x.term.args[1], x.spec)
        return b.call(op, (x,), (), specs)

    return rule


ARITHMETIC_RULES: dict[str, Rule] = {
    "aten.add": _rule_add,
    "aten.sub": _rule_sub,
    "aten.rsub": _rule_rsub,
    "aten.mul": _rule_mul,
    "aten.div": _rule_div,
    "aten.pow": _rule_pow,
    "aten.erf": _bounded("aten.erf.default"),
    "aten.tanh": _bounded("aten.tanh.default"),
}


def shrink_constants(b: Builder, args: Sequence[Any], spec: Spec) -> list[Any]:
    """In a pointwise call, constants of the full shape become scalars where another operand carries shape and dtype."""
    tensors = [a for a in args if isinstance(a, Out)]
    constants = [a for a in tensors if a.term.op == "aten.full.default" and a.shape != ()]
    others = [a for a in tensors if a not in constants]
    shaped = any(a.shape == spec.shape for a in others)
    typed = len({a.dtype for a in tensors if a.dtype != torch.bool}) <= 1
    if not constants or not shaped or not typed:
        return list(args)
    return [full(b, (), a.term.args[1], a.dtype) if a in constants else a for a in args]


def flatten_products(b: Builder, outputs: Sequence[Out]) -> list[Out]:
    """Normal form of chains of products with a number in them: the tensors sorted by structure, the number where it makes
    nothing overflow that was finite (0.5 * x * (1 + tanh) at 2e38). Where a result is seen as it is, the numbers are powers of
    two, whose products are exact: x * 0.1 * 13 is 117 where x is 90, and x * 1.3 is 116.99999, which a conversion to an integer
    makes 116. Behind a curve (the argument of a GELU's tanh) any will do: nobody computes it to the last bit.

    Only chains in float32 or float64, of one shape, of at most two different tensors, whose inner products are used once
    are touched. Bottom-up, one pass.
    """
    uses = Counter(out for term in reachable(outputs) for out in outs_of(term))
    uses.update(outputs)
    seen = _seen(outputs)
    new: dict[Term, Term] = {}
    products: dict[Out, Out] = {}
    colour = Structure()

    def moved(out: Out) -> Out:
        return products.get(out) or Out(new.get(out.term, out.term), out.index)

    def factors(out: Out, spec: Spec, root: bool) -> list[Any]:
        term = out.term
        if term.op != MUL or term.outs[0] != spec or not (root or uses[out] == 1):
            return [out]
        return [f for arg in term.args for f in (factors(arg, spec, False) if isinstance(arg, Out) else [arg])]

    for term in reachable(outputs):
        parts = factors(Out(term), term.outs[0], True) if term.op == MUL else []
        exact = term not in seen or all(map(_is_power_of_two, (p for p in parts if isinstance(p, float))))
        product = _rebuilt(b, parts, term, moved, colour) if parts and exact else None
        if product is not None:
            products[Out(term)] = product
            continue
        args = map_outs(term.args, moved)
        if term.op == "aten.div.Tensor":
            args = tuple(scalar(arg, term.outs[0].dtype) for arg in args)
        new[term] = b.term(term.op, args, map_outs(term.kwargs, moved), term.outs)
    return [moved(out) for out in outputs]


CURVES = {f"aten.{name}.default" for name in ("tanh", "erf", "exp", "exp2", "expm1", "sigmoid", "log", "log1p", "sin", "cos")}


def _seen(outputs: Sequence[Out]) -> set[Term]:
    """The terms that reach an output without passing a curve."""
    found: set[Term] = set()
    pending = [out.term for out in outputs]
    while pending:
        term = pending.pop()
        if term not in found:
            found.add(term)
            pending += [] if term.op in CURVES else [out.term for out in outs_of(term)]
    return found


def _is_power_of_two(number: float) -> bool:
    return abs(math.frexp(number)[0]) == 0.5


def _rebuilt(b: Builder, parts: list[Any], term: Term, moved: Callable[[Out], Out], colour: Callable[[Out], str]) -> Out | None:
    spec = term.outs[0]
    tensors = [moved(p) for p in parts if isinstance(p, Out)]
    numbers = [p for p in parts if isinstance(p, float)]
    if len(parts) < 3 or not numbers or len(tensors) + len(numbers) < len(parts):
        return None
    if spec.dtype not in (torch.float32, torch.float64) or any(t.spec != spec for t in tensors) or not tensors:
        return None
    if len(tensors) > 2 and len(set(tensors)) > 1:
        return None
    number = math.prod(numbers)
    if not SMALLEST <= abs(number) <= 1 / SMALLEST:
        return None
    product, *rest = sorted(tensors, key=colour)
    for factor in [number, *rest] if abs(number) <= 1 else [*rest, number]:
        product = mul(b, product, factor, spec)
    return product

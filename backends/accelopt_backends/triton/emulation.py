"""The language's interpreter, put right for what it does silently wrong, and switched on for as long as a kernel runs.

The language chooses between compiling and interpreting when it is imported. Here one process does both: its own device
functions (tl.sum and others) are exchanged for interpreted ones while `interpreting` lasts, and put back afterwards.
What is put right: bf16 is rounded to nearest even and computed with through float32 (the interpreter truncates, and computes
on bit patterns), dots round to TF32 where the device would, assertions and hints hold, lanes store in either order, reductions
with a function of the kernel's own take logarithmically many steps. What stays blind is in README.md.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from accelopt_backends.triton import promises


class Stopped(Exception):
    """A device assertion failed."""


class Function:
    """A device function that runs in the interpreter. `fn` is the Python function as written."""

    def __init__(self, fn: Any) -> None:
        self.fn, self.__name__ = fn, fn.__name__
        self._rewritten: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rewritten is None:
            from triton.runtime.interpreter import FunctionRewriter

            self._rewritten = FunctionRewriter(self.fn).rewrite_ast()
        kwargs.pop("_semantic", None)
        kwargs.pop("_generator", None)
        return self._rewritten(*args, **kwargs)


def interpreted(module: ModuleType) -> dict[str, Function]:
    """The device functions of a kernel's module, which from now on calls them interpreted."""
    from triton.runtime.interpreter import InterpretedFunction

    found = {name: Function(value.fn) for name, value in vars(module).items() if isinstance(value, InterpretedFunction)}
    vars(module).update(found)
    return found


@contextlib.contextmanager
def interpreting(*, backwards: bool = False) -> Iterator[Any]:
    """Switch the interpreter on; yields its builder, which holds the grid. `backwards`: of lanes that store to one place the
    first wins instead of the last; a device promises neither."""
    import triton.language as tl
    from triton.runtime import interpreter

    scope = interpreter._LangPatchScope()
    patched = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    try:
        for owner, name, function in _device_functions():
            scope.set_attr(owner, name, function)
        _put_right(scope, interpreter, tl)
        promises.hold_hints(scope, tl)
        if backwards:
            scope.set_attr(interpreter.interpreter_builder, "create_masked_store", promises.stored_backwards(interpreter))
        with np.errstate(all="ignore"):
            yield interpreter.interpreter_builder
    finally:
        scope.restore()
        patched.restore()


@lru_cache(maxsize=1)
def _device_functions() -> tuple[tuple[Any, str, Any], ...]:
    """Every name under which the language knows a device function of its own, with the interpreted one."""
    import triton.language as tl
    from triton.runtime import JITFunction
    from triton.runtime.interpreter import InterpretedFunction

    made: dict[Any, Function] = {}
    found = []
    owners = [m for name, m in sorted(sys.modules.items()) if name.startswith("triton.language") and m is not None]
    for owner in [*owners, tl.tensor]:
        for name, value in list(vars(owner).items()):
            if isinstance(value, JITFunction | InterpretedFunction):
                function = made.setdefault(value.fn, Function(value.fn))
                found.append((owner, name, _method(function) if owner is tl.tensor else function))
    return tuple(found)


def _method(function: Function) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


# ---------------------------------------------------------------- what is put right


def _put_right(scope: Any, interpreter: ModuleType, tl: Any) -> None:
    from triton._C.libtriton import ir

    builder, handle, bf16 = interpreter.interpreter_builder, interpreter.TensorHandle, tl.bfloat16
    numpy_type = interpreter._get_np_dtype
    plain_cast, plain_dot = builder.cast_impl, builder.create_dot
    plain = {name: getattr(builder, name) for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_fabs")}

    def is_bf16(x: Any) -> bool:
        return bool(x.dtype.scalar == bf16 and x.data.dtype == np.uint16)

    def wide(x: Any) -> Any:
        return handle(widened(x.data), tl.float32) if is_bf16(x) else x

    def narrow(x: Any) -> Any:
        return handle(to_bf16(x.data), bf16) if x.data.dtype == np.float32 else x

    def cast(src: Any, dst_type: Any) -> Any:
        dst = dst_type.scalar
        if is_bf16(src) and dst == bf16:
            return src
        if is_bf16(src):
            return plain_cast(wide(src), dst_type)
        if dst == bf16:
            return handle(to_bf16(src.data.astype(np.float64 if src.data.dtype == np.float64 else np.float32)), bf16)
        if src.dtype.scalar.is_floating() and dst.is_int():
            return handle(to_integer(src.data, numpy_type(dst)), dst)
        return plain_cast(src, dst_type)

    def fp_to_fp(src: Any, dst_type: Any, rounding: Any) -> Any:
        kinds = {src.dtype.scalar.primitive_bitwidth, dst_type.scalar.primitive_bitwidth}
        if 8 not in kinds and rounding in (None, ir.ROUNDING_MODE.RTNE):
            return cast(src, dst_type)
        return plain_fp_to_fp(wide(src), dst_type, rounding)

    def through_wide(name: str, operands: int) -> Callable[..., Any]:
        def op(*args: Any) -> Any:
            if any(is_bf16(x) for x in args[:operands]):
                result = narrow(plain[name](*(wide(x) for x in args[:operands]), *args[operands:]))
            else:
                result = plain[name](*args)
            # A comparison keeps the type of what it compared, and is then spread over a block as numbers.
            return handle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

        return op

    def dot(a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if precision == ir.INPUT_PRECISION.TF32 and a.data.dtype == np.float32:
            a, b = (handle(interpreter._round_f32_to_tf32(x.data), tl.float32) for x in (a, b))
        return plain_dot(wide(a), wide(b), d, precision, imprecise)

    def check(condition: Any, message: Any) -> None:
        if not np.all(condition.data):
            raise Stopped(str(message))

    plain_fp_to_fp = builder.create_fp_to_fp
    for name, count in (("binary_op", 2), ("unary_op", 1), ("ternary_op", 3), ("create_fma", 3), ("create_fabs", 1)):
        scope.set_attr(builder, name, through_wide(name, count))
    scope.set_attr(builder, "cast_impl", cast)
    scope.set_attr(builder, "create_fp_to_fp", fp_to_fp)
    scope.set_attr(builder, "create_dot", dot)
    scope.set_attr(builder, "create_assert", check)
    # Assertions are compiled with `debug` alone; checks of 32-bit overflow stay off: the device wraps around as numpy does.
    scope.set_attr(builder, "options", interpreter.InterpreterOptions(debug=True, sanitize_overflow=False))
    for owner in (tl, tl.core):
        scope.set_attr(owner, "reduce", _reduce(interpreter, tl))
        scope.set_attr(owner, "associative_scan", _scan(interpreter, tl))


def widened(bits: np.ndarray) -> Any:
    """float32 of bf16 bit patterns (uint16): exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Bit patterns (uint16) of the nearest bf16, ties to even; a NaN stays one."""
    narrow = values.astype(np.float32)
    if values.dtype == np.float64:  # rounding twice is wrong at ties: keep what float32 cut off as a last, odd bit
        bits = narrow.view(np.uint32)
        past = np.abs(narrow.astype(np.float64)) > np.abs(values)
        odd = np.where(past, bits - np.uint32(1), bits) | (narrow.astype(np.float64) != values).astype(np.uint32)
        narrow = np.where(np.isfinite(narrow), odd, bits).astype(np.uint32).view(np.float32)
    bits = np.ascontiguousarray(narrow).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(narrow), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def to_integer(values: np.ndarray, kind: np.dtype) -> Any:
    """Towards zero, held within 32 or 64 bits, NaN to 0, narrower types cut off from that: what the devices do. numpy leaves
    such values to the processor."""
    if kind == np.bool_:
        return values != 0
    held = kind if kind.itemsize >= 4 else np.dtype(np.int32)
    about = np.iinfo(held)
    whole = np.trunc(np.where(np.isnan(values), 0, values).astype(np.float64))
    inside = np.clip(whole, float(about.min), np.nextafter(float(about.max), 0.0)).astype(held)
    return np.where(whole >= float(about.max), about.max, inside).astype(kind)


# ---------------------------------------------------------------- reductions with any function


def _refuse_bf16(given: tuple[Any, ...], tl: Any, what: str) -> None:
    if any(x.dtype.scalar == tl.bfloat16 for x in given):
        raise TypeError(f"{what} of bfloat16: convert to tl.float32 first, the device would add up in bfloat16")


def _reduce(interpreter: ModuleType, tl: Any) -> Callable[..., Any]:
    """tl.reduce; with a function of the kernel's own, as a tree over halves of the axis."""
    known = (
        *(tl.standard._argmin_combine_tie_break_left, tl.standard._argmin_combine_tie_break_fast),
        *(tl.standard._argmax_combine_tie_break_left, tl.standard._argmax_combine_tie_break_fast),
        *(tl.standard._elementwise_max, tl.standard._elementwise_min, tl.standard._sum_combine),
    )

    def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **_: Any) -> Any:
        given = input if isinstance(input, tuple) else (input,)
        _refuse_bf16(given, tl, "a reduction")
        ops = interpreter.ReduceOps(axis, combine_fn, keep_dims)
        if combine_fn in known:
            return ops.apply(input)
        ops.check_tensor(given)
        arrays = [x.handle.data if axis is not None else x.handle.data.reshape(-1) for x in given]
        place = 0 if axis is None else axis % arrays[0].ndim
        while arrays[0].shape[place] > 1:
            half = arrays[0].shape[place] // 2
            sides = [np.split(a, [half], axis=place) for a in arrays]
            combined = combine_fn(*(ops.to_tensor(s[k], x.dtype) for k in (0, 1) for s, x in zip(sides, given, strict=True)))
            arrays = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
        shape = [1] * given[0].handle.data.ndim if axis is None else list(arrays[0].shape)
        final = [a.reshape(shape) if keep_dims else np.squeeze(a, axis=place) for a in arrays]
        results = tuple(ops.to_tensor(a, x.dtype) for a, x in zip(final, given, strict=True))
        return results if isinstance(input, tuple) else results[0]

    return reduce


def _turned(values: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    return np.ascontiguousarray(np.flip(values, axis=axis)) if reverse else values


def _scan(interpreter: ModuleType, tl: Any) -> Callable[..., Any]:
    """tl.associative_scan; with a function of the kernel's own, by doubling distances."""
    known = (tl.standard._sum_combine, tl.standard._prod_combine)

    def scan(input: Any, axis: Any, combine_fn: Any, reverse: bool = False, **_: Any) -> Any:
        given = input if isinstance(input, tuple) else (input,)
        _refuse_bf16(given, tl, "a scan")
        ops = interpreter.ScanOps(axis, combine_fn, reverse)
        if combine_fn in known:
            return ops.apply(input)
        ops.check_tensor(given)
        arrays = [_turned(x.handle.data, axis, reverse) for x in given]
        place = np.arange(arrays[0].shape[axis]).reshape([-1 if k == axis % arrays[0].ndim else 1 for k in range(arrays[0].ndim)])
        distance = 1
        while distance < place.size:
            sides = ([np.roll(a, distance, axis=axis) for a in arrays], arrays)  # whole blocks: their sizes are powers of two
            combined = combine_fn(*(ops.to_tensor(a, x.dtype) for side in sides for a, x in zip(side, given, strict=True)))
            parts = [t.handle.data for t in (combined if isinstance(combined, tuple) else (combined,))]
            arrays = [np.where(place < distance, a, part) for a, part in zip(arrays, parts, strict=True)]
            distance *= 2
        results = tuple(ops.to_tensor(_turned(a, axis, reverse), x.dtype) for a, x in zip(arrays, given, strict=True))
        return results if isinstance(input, tuple) else results[0]

    return scan

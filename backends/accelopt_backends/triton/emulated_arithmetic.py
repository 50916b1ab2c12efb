"""The arithmetic of the language's interpreter, put right: bf16 by way of float32, conversions and dots as devices make them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

_OPERANDS = {"binary_op": 2, "unary_op": 1, "ternary_op": 3, "create_fma": 3, "create_fabs": 1}
"""What the builder computes element by element, and how many of the arguments are operands."""


class Arithmetic:
    """What takes the place of the builder's own arithmetic. That is held, and is given what it gets right."""

    def __init__(self, interpreter: ModuleType, tl: Any) -> None:
        from triton._C.libtriton import ir

        self.interpreter, self.tl, self.ir, self.handle = interpreter, tl, ir, interpreter.TensorHandle
        builder = interpreter.interpreter_builder
        self.plain = {name: getattr(builder, name) for name in _OPERANDS}
        self.plain_cast, self.plain_fp_to_fp, self.plain_dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot

    def put_into(self, scope: Any) -> None:
        """Exchange the builder's arithmetic, for as long as `scope` lasts."""
        builder = self.interpreter.interpreter_builder
        for name, count in _OPERANDS.items():
            scope.set_attr(builder, name, self.through_wide(name, count))
        scope.set_attr(builder, "cast_impl", self.cast)
        scope.set_attr(builder, "create_fp_to_fp", self.fp_to_fp)
        scope.set_attr(builder, "create_dot", self.dot)

    def is_bf16(self, x: Any) -> bool:
        return bool(x.dtype.scalar == self.tl.bfloat16 and x.data.dtype == np.uint16)

    def wide(self, x: Any) -> Any:
        return self.handle(widened(x.data), self.tl.float32) if self.is_bf16(x) else x

    def narrow(self, x: Any) -> Any:
        return self.handle(to_bf16(x.data), self.tl.bfloat16) if x.data.dtype == np.float32 else x

    def cast(self, src: Any, dst_type: Any) -> Any:
        dst = dst_type.scalar
        if self.is_bf16(src) and dst == self.tl.bfloat16:
            return src
        if self.is_bf16(src):
            return self.plain_cast(self.wide(src), dst_type)
        if dst == self.tl.bfloat16:
            floats = src.data.astype(np.float64 if src.data.dtype == np.float64 else np.float32)
            return self.handle(to_bf16(floats), self.tl.bfloat16)
        if src.dtype.scalar.is_floating() and dst.is_int():
            return self.handle(to_integer(src.data, self.interpreter._get_np_dtype(dst)), dst)
        return self.plain_cast(src, dst_type)

    def fp_to_fp(self, src: Any, dst_type: Any, rounding: Any) -> Any:
        kinds = {src.dtype.scalar.primitive_bitwidth, dst_type.scalar.primitive_bitwidth}
        if 8 not in kinds and rounding in (None, self.ir.ROUNDING_MODE.RTNE):
            return self.cast(src, dst_type)
        return self.plain_fp_to_fp(self.wide(src), dst_type, rounding)

    def through_wide(self, name: str, operands: int) -> Callable[..., Any]:
        def op(*args: Any) -> Any:
            if any(self.is_bf16(x) for x in args[:operands]):
                result = self.narrow(self.plain[name](*(self.wide(x) for x in args[:operands]), *args[operands:]))
            else:
                result = self.plain[name](*args)
            # A comparison keeps the type of what it compared, and is then spread over a block as numbers.
            return self.handle(result.data, self.tl.int1) if result.data.dtype == np.bool_ else result

        return op

    def dot(self, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if precision == self.ir.INPUT_PRECISION.TF32 and a.data.dtype == np.float32:
            a, b = (self.handle(self.interpreter._round_f32_to_tf32(x.data), self.tl.float32) for x in (a, b))
        return self.plain_dot(self.wide(a), self.wide(b), d, precision, imprecise)


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

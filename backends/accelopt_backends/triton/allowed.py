"""What a device function may name: the part of Triton's language (3.9) that computes on tensors and means the same in the
interpreter and on a device. Everything else is refused, so that a name which a later version brings is refused until it is read.

Left out on purpose: inline assembly, printing, `tl.extra` (libraries, clocks, processor numbers), atomics (two runs must agree
bit for bit), random numbers, `cat` and `view` (they may reorder), scaled and 8-bit dots, block pointers (deprecated).
"""

from __future__ import annotations

_DTYPES = "int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
DTYPES = frozenset(_DTYPES.split())

_CREATE = "arange full zeros zeros_like"
_MEMORY = "load store make_tensor_descriptor load_tensor_descriptor store_tensor_descriptor debug_barrier gather"
_PROGRAM = "program_id num_programs cdiv swizzle2d"
_SHAPE = "broadcast broadcast_to expand_dims reshape trans permute ravel squeeze unsqueeze join split interleave flip"
_ELEMENTWISE = (
    "where maximum minimum clamp abs exp exp2 log log2 sqrt sqrt_rn rsqrt sin cos erf floor ceil fdiv div_rn fma umulhi sigmoid "
    "cast add sub mul"
)
_REDUCE = "sum max min argmax argmin xor_sum reduce_or reduce associative_scan cumsum cumprod sort topk softmax histogram dot"
_HINTS = "static_assert device_assert assume multiple_of max_contiguous max_constancy"
CALLS = frozenset(" ".join((_CREATE, _MEMORY, _PROGRAM, _SHAPE, _ELEMENTWISE, _REDUCE, _HINTS)).split())
"""Functions of `tl` that may be called."""

_MATH = "umulhi exp exp2 log log2 cos sin sqrt sqrt_rn rsqrt abs fdiv div_rn erf floor ceil fma"
MATH = frozenset(_MATH.split())
"""Functions of `tl.math`."""

LOOPS = frozenset(("range", "tl.range", "tl.static_range"))
COMBINERS = frozenset(("reduce", "associative_scan"))
"""Functions of `tl` that take a device function as a value."""

METHODS = frozenset(("to", "load", "store"))
"""Methods of tensors and tensor descriptors."""
ATTRIBUTES = frozenset(("dtype", "shape", "T", "element_ty"))
"""Attributes of values."""

BUILTINS = frozenset(("min", "max", "float"))
"""Python's own functions that Triton compiles; `float` only as float("inf"), float("-inf") and float("nan")."""
FLOATS = frozenset(("inf", "-inf", "nan"))

_KEYWORDS = (
    "mask other boundary_check padding_option cache_modifier eviction_policy axis keep_dims reverse dtype acc input_precision "
    "out_dtype propagate_nan return_indices return_indices_tie_break_left tie_break_left descending dim k combine_fn input "
    "value "
    "shape strides block_shape bitcast fp_downcast_rounding ieee_rounding num_stages loop_unroll_factor flatten warp_specialize "
    "disallow_acc_multi_buffer disable_licm"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""Keywords of calls of `tl` and of methods."""

STRINGS = {
    "cache_modifier": frozenset(("", ".ca", ".cg", ".cs", ".wb", ".wt")),
    "eviction_policy": frozenset(("", "evict_first", "evict_last", "evict_normal")),
    "padding_option": frozenset(("", "zero")),
    "fp_downcast_rounding": frozenset(("rtne",)),
}
"""Keywords that take a word, and the words."""

PRECISIONS = frozenset(("ieee", "tf32", "tf32x3"))
"""Words for how tl.dot takes float32; other types are taken as they are."""

ACCUMULATORS = frozenset(("float32", "float64", "int32"))

_RESERVED = (
    "tl triton len list range float int isinstance getattr hasattr print min max interpreter_semantic _InterpreterComparison "
    "INTERPRETED"
)
RESERVED = frozenset(_RESERVED.split())
"""Names that mean something to the compiler or the interpreter, and may not be given to anything of the file's own."""

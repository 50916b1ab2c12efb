"""What one top-k region asks for: found in the workload, or the reason why it is not one.

The region is `aten.topk` over the last dimension of a view of one input. Before it there may be element-wise steps that keep
or turn the order of the elements (scaling, shifting, conversion); after it, element-wise steps on the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_backends.cpp.attention_text import size_text
from accelopt_backends.cpp.expressions import literal, point_text
from accelopt_backends.loops.affine import Unsupported
from accelopt_backends.loops.attention_views import (
    RESHAPES,
    SAME,
    VIEW_OPS,
    NotAView,
    View,
    apply_view,
    merged,
    op_name,
    size_of,
    view_of,
)
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import Dim, Node, Ref, Workload, evaluate_dim

TOPK = "aten.topk.default"
FLOATS = ("f32", "bf16", "f16")
INTEGERS = ("i64", "i32")
_CONVERSIONS = ("convert_element_type", "_to_copy")
_AFTER = ("exp", "sigmoid", "tanh", "sqrt", "log", "relu", "abs", "square")
"""Functions of one value that may follow the selection."""


class NotATopK(Exception):
    """The workload is no top-k that this kernel serves; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """One output: positions, or values after `steps` (C++ with {} for the value so far)."""

    dtype: str
    indices: bool
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything the text needs. The answer is always sorted, which an unsorted top-k may be. `largest` is about the stored
    elements, after turning the order where a step before does; `leading` holds (size, stride) of the dimensions before the
    last, outermost first; texts are C++ over the symbols."""

    dtype: str
    k: int
    largest: bool
    nan_first: bool
    source: int
    offset: str
    leading: tuple[tuple[str, str], ...]
    rows: str
    length: str
    static_length: int | None
    outputs: tuple[Output, ...]
    sections: frozenset[str]


def find(workload: Workload) -> Problem:
    """The top-k in `workload`. Raises NotATopK with the reason when there is none."""
    places = [i for i, n in enumerate(workload.nodes) if n.op == TOPK]
    if len(places) != 1:
        raise NotATopK("not exactly one top-k")
    try:
        return _Finder(workload, places[0]).problem()
    except (NotAView, InvalidRecord, Unsupported) as failure:
        raise NotATopK(str(failure)) from failure


class _Finder:
    def __init__(self, workload: Workload, place: int) -> None:
        self.workload = workload
        self.place = place
        self.node = workload.nodes[place]
        self.used = {place}
        self.turned = False
        self.before: list[str] = []
        self.sections: set[str] = set()

    def problem(self) -> Problem:
        source, k, dim, largest, _sorted = self._arguments()
        if not isinstance(source, Ref) or not isinstance(k, int) or k < 1:
            raise NotATopK("top-k of another kind than a fixed number of elements of a tensor")
        rank = len(self.workload.spec_of(source).shape)
        if rank == 0 or int(dim) % rank != rank - 1:
            raise NotATopK("top-k over another dimension than the last")
        view = self._source(source)
        dtype = self.workload.inputs[view.source.index].dtype
        if dtype not in FLOATS:
            raise NotATopK(f"top-k of {dtype}")
        row = merged(view.dims[-1])
        if len(row) > 1 or (row and row[0][1].static != 1):
            raise NotATopK("rows that are not contiguous")
        length = size_of(view.dims[-1])
        if length.static is not None and length.static < k:
            raise NotATopK("rows shorter than k")
        leading = merged([f for d in view.dims[:-1] for f in d])
        outputs = tuple(self._output(n) for n in range(len(self.workload.outputs)))
        for i, node in enumerate(self.workload.nodes):
            if i not in self.used:
                raise NotATopK(f"{node.op} beside the top-k")
        return Problem(
            dtype=dtype, k=k, largest=bool(largest) != self.turned, nan_first=bool(largest), source=view.source.index,
            offset=size_text(view.offset), leading=tuple((size_text(size), size_text(stride)) for size, stride in leading),
            rows=size_text(size_of(leading)), length=size_text(length), static_length=length.static, outputs=outputs,
            sections=frozenset(self.sections),
        )  # fmt: skip

    def _arguments(self) -> tuple[Any, ...]:
        """self, k, dim, largest, sorted."""
        defaults: dict[str, Any] = {"self": None, "k": None, "dim": -1, "largest": True, "sorted": True}
        given = dict(zip(defaults, self.node.args, strict=False)) | dict(self.node.kwargs)
        return tuple(given.get(name, default) for name, default in defaults.items())

    # ------------------------------------------------------------ before the selection

    def _source(self, ref: Ref) -> View:
        """The strided view that is selected from, through views and steps that keep or turn the order."""
        if ref.kind == "i":
            return view_of(ref, self.workload.inputs[ref.index], self.workload.symbols)
        node = self.workload.nodes[ref.index]
        self.used.add(ref.index)
        if op_name(node) in VIEW_OPS and isinstance(node.args[0], Ref):
            return apply_view(node, self._source(node.args[0]), self.workload)
        operand, text, turns = self._monotone(node)
        view = self._source(operand)
        self.turned ^= turns
        if text:
            self.before.append(text)
        return view

    def _monotone(self, node: Node) -> tuple[Ref, str, bool]:
        """(operand, C++ step, whether it turns the order) of a step before the selection. Raises NotATopK."""
        name = op_name(node)
        refs = [a for a in node.args if isinstance(a, Ref)]
        if len(refs) != 1 or node.outputs[0].dtype not in FLOATS or self.workload.spec_of(refs[0]).dtype not in FLOATS:
            raise NotATopK(f"{node.op} before the top-k")
        if name in _CONVERSIONS:
            return refs[0], "", False
        text, scale = _scalar_step(node)
        if text is None or not math.isfinite(scale) or scale == 0:
            raise NotATopK(f"{node.op} before the top-k")
        return refs[0], text, scale < 0

    # ------------------------------------------------------------ after it

    def _output(self, number: int) -> Output:
        ref, spec = self.workload.outputs[number], self.workload.output_specs[number]
        if not _contiguous(self.workload, spec.shape, spec.strides):
            raise NotATopK("outputs that are not contiguous")
        steps: list[str] = []
        while ref != Ref("n", self.place) and ref != Ref("n", self.place, 1):
            ref = self._after(ref, steps)
        if ref.output == 1:
            if steps or spec.dtype not in INTEGERS:
                raise NotATopK("arithmetic on the positions")
            return Output(dtype=spec.dtype, indices=True)
        if spec.dtype not in FLOATS:
            raise NotATopK(f"values in {spec.dtype}")
        return Output(dtype=spec.dtype, indices=False, steps=(*self.before, *reversed(steps)))

    def _after(self, ref: Ref, steps: list[str]) -> Ref:
        """The operand of a step behind the selection; its text goes to `steps`."""
        if ref.kind == "i":
            raise NotATopK("an output that is an input")
        node = self.workload.nodes[ref.index]
        refs = [a for a in node.args if isinstance(a, Ref)]
        if len(refs) != 1 or ref.index < self.place:
            raise NotATopK(f"{node.op} behind the top-k")
        self.used.add(ref.index)
        name, operand = op_name(node), self.workload.spec_of(refs[0]).dtype
        if name in RESHAPES | SAME or (name in _CONVERSIONS and (operand in FLOATS) == (node.outputs[0].dtype in FLOATS)):
            return refs[0]
        if operand not in FLOATS or node.outputs[0].dtype not in FLOATS:
            raise NotATopK(f"{node.op} of {operand} behind the top-k")
        if name in _AFTER:
            text, section, _ = point_text(name, ["{}"], "f")
            self.sections.add(section)
            steps.append(text)
            return refs[0]
        step, _ = _scalar_step(node)
        if step is None:
            raise NotATopK(f"{node.op} behind the top-k")
        steps.append(step)
        return refs[0]


def _scalar_step(node: Node) -> tuple[str | None, float]:
    """(C++ text, slope) of arithmetic with one number; (None, 0) when it is something else."""
    name, args = op_name(node), node.args
    if name == "neg":
        return "-{}", -1.0
    numbers = [a for a in args[:2] if isinstance(a, int | float) and not isinstance(a, bool)]
    if len(args) < 2 or len(numbers) != 1 or dict(node.kwargs) or len(args) > 2 or not math.isfinite(numbers[0]):
        return None, 0.0
    number, first = float(numbers[0]), isinstance(args[0], int | float)
    text = literal(number, "f")
    forms: dict[str, Callable[[], tuple[str | None, float]]] = {
        "mul": lambda: (f"{{}} * {text}", number),
        "div": lambda: (None, 0.0) if first or number == 0 else (f"{{}} / {text}", number),
        "add": lambda: (f"{{}} + {text}", 1.0),
        "sub": lambda: (f"{text} - {{}}", -1.0) if first else (f"{{}} - {text}", 1.0),
    }
    return forms[name]() if name in forms else (None, 0.0)


def _contiguous(workload: Workload, shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    size = 1
    binding = {s: 1009 + 2 * i for i, s in enumerate(workload.symbols)}
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and evaluate_dim(stride, binding) != size:
            return False
        size *= evaluate_dim(n, binding)
    return True

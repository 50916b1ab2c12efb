"""A region becomes a `Workload`: canonical, shape-generic where it can be, the same in every process and on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from accelopt_compile.arithmetic import flatten_products
from accelopt_compile.dims import Dims
from accelopt_compile.dtypes import SHORT_DTYPE
from accelopt_compile.errors import AccelOptError
from accelopt_compile.family import PRODUCTS, family_of
from accelopt_compile.fingerprint import numerics
from accelopt_compile.layout import Layouts, stride_class
from accelopt_compile.order import ordered
from accelopt_compile.records import Dim, DtypeArg, Node, Ref, SymbolArg, TensorSpec, Workload
from accelopt_compile.regions import Region
from accelopt_compile.sizes import hint
from accelopt_compile.terms import INPUT, Builder, Out, Size, Term, reachable, unviewed
from accelopt_compile.translate import Translator
from accelopt_compile.views import size_of

_HEEDED = {
    "float32_matmul_precision": ("aten._scaled_dot_product", *(f"aten.{name}" for name in sorted(PRODUCTS)), "aten.convolution"),
    "deterministic": ("aten.scatter", "aten.cumsum", "aten.cumprod", "aten.index_put", "aten.sort", "aten.topk"),
}
"""Which operators heed a flag of the process."""

__all__ = ["Signed", "SymbolSource", "Unsignable", "family_of", "sign", "try_sign"]


class Unsignable(AccelOptError):
    """A region whose symbolic sizes cannot be read from its inputs, or whose arguments have no canonical form."""


@dataclass(frozen=True, kw_only=True)
class SymbolSource:
    """Where a symbol's value comes from: `size` (an int, or the sympy expression of the graph) is dimension `dim` of
    `region.inputs[input]`."""

    size: Size
    input: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A region's workload and how the two fit: workload input k is `region.inputs[input_order[k]]`, workload output k is
    `region.outputs[output_order[k]]`, symbol k comes from `symbol_exprs[k]`; `binding` holds sizes at compile time."""

    workload: Workload
    binding: dict[str, int]
    input_order: tuple[int, ...]
    output_order: tuple[int, ...]
    symbol_exprs: tuple[SymbolSource, ...]


def sign(region: Region, *, numerics: Mapping[str, str] | None = None) -> Signed:
    """The canonical form of `region`. `numerics` replaces the process's flags. Adds no guard on symbolic sizes.

    Raises Unsignable.
    """
    terms = _Terms(region)
    signer = _Signer(region, terms, numerics=numerics)
    signed = signer.sign()
    if signer.layouts.by_expression:
        signed = _Signer(region, terms, by_name=True, numerics=numerics).sign()
    if not _fits(region, signed):
        signed = _Signer(region, terms, pin_all=True, by_name=True, numerics=numerics).sign()
        if not _fits(region, signed):
            raise Unsignable(f"region {region.name}: the workload does not give the region's shapes back")
    return signed


def try_sign(region: Region, *, numerics: Mapping[str, str] | None = None) -> Signed | str:
    """As `sign`, but the reason instead of an exception."""
    try:
        return sign(region, numerics=numerics)
    except Unsignable as failure:
        return str(failure)


class _Terms:
    """The region as normalised terms, with what FX knows beside them."""

    def __init__(self, region: Region) -> None:
        translator = Translator()
        for i, node in enumerate(region.inputs):
            translator.add_input(node, i)
        for node in region.nodes:
            translator.add(node)
        self.builder = translator.builder
        outputs = [self._materialised(_single(translator.env[node])) for node in region.outputs]
        self.outputs = flatten_products(self.builder, outputs)
        self.hints: dict[Any, int] = {}
        for node in (*region.inputs, *region.nodes):
            for value in _tensors(node.meta["val"]):
                for size in (*value.shape, *value.stride()):
                    if isinstance(size, torch.SymInt):
                        self.hints[size_of(size)] = hint(size)
        self.strides = {_single(translator.env[node]): [hint(s) for s in node.meta["val"].stride()] for node in region.inputs}

    def _materialised(self, out: Out) -> Out:
        """An output that only shows an input anew is a copy of it."""
        shown = unviewed(out).term.op == INPUT
        return self.builder.one("aten.clone.default", (out,), out.dtype, out.shape) if shown else out


def _single(value: Out | tuple[Out | None, ...]) -> Out:
    assert isinstance(value, Out)
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, tuple | list) else (value,)
    return [v for v in values if isinstance(v, torch.Tensor)]


class _Signer:
    def __init__(
        self, region: Region, terms: _Terms, *, pin_all: bool = False, by_name: bool = False, numerics: Mapping[str, str] | None
    ) -> None:
        self.region = region
        self.numerics = numerics
        self.builder: Builder = terms.builder
        dims = Dims(terms.outputs, terms.strides, terms.hints, by_name=by_name)
        classes = {out: stride_class(out.shape, terms.strides[out], dims.hint_of, out) for out in terms.strides}

        def text(out: Out) -> str:
            sizes = ["p" if dims.parts_of(s) else "s" if not dims.is_pinned(s) else str(dims.hint_of(s)) for s in _slots(out)]
            return f"{out.dtype}{sizes}{classes.get(out, '')}"

        self.outputs, order = ordered(self.builder, terms.outputs, text)
        self.output_order = tuple(order)
        self.dims = Dims(self.outputs, terms.strides, terms.hints, pin_all=pin_all, by_name=by_name)
        reached = reachable(self.outputs)
        self.inputs = [term for term in reached if term.op == INPUT]
        self.calls = [term for term in reached if term.op != INPUT]
        self.layouts = Layouts(self.dims, [Out(term) for term in self.inputs], Unsignable)

    def sign(self) -> Signed:
        refs = {term: Ref("i", i) for i, term in enumerate(self.inputs)}
        refs.update({term: Ref("n", i) for i, term in enumerate(self.calls)})
        input_order = tuple(term.args[0] for term in self.inputs)
        workload = Workload(
            inputs=tuple(self._tensor(Out(t), self.region.inputs[t.args[0]].meta["val"].stride()) for t in self.inputs),
            nodes=tuple(self._node(term, refs) for term in self.calls),
            outputs=tuple(Ref("n", refs[out.term].index, out.index) for out in self.outputs),
            output_specs=tuple(
                self._tensor(out, self.region.outputs[self.output_order[k]].meta["val"].stride())
                for k, out in enumerate(self.outputs)
            ),
            symbols=tuple(self.layouts.symbols),
            numerics=tuple(sorted(self._numerics().items())),
        )
        sources = tuple(
            SymbolSource(size=out.shape[dim], input=out.term.args[0], dim=dim) for out, dim in self.layouts.symbols.values()
        )
        binding = {name: self.dims.hint_of(slot) for name, slot in self.layouts.symbols.items()}
        return Signed(
            workload=workload, binding=binding, input_order=input_order, output_order=self.output_order, symbol_exprs=sources
        )

    def _tensor(self, out: Out, strides: Sequence[int | torch.SymInt]) -> TensorSpec:
        shape = self.layouts.shape(out)
        return TensorSpec(
            dtype=SHORT_DTYPE[out.dtype], shape=shape, strides=self.layouts.strides(out, tuple(size_of(s) for s in strides))
        )

    def _node(self, term: Term, refs: Mapping[Term, Ref]) -> Node:
        outs = []
        for i in range(len(term.outs)):
            shape = self.layouts.shape(Out(term, i))
            outs.append(
                TensorSpec(dtype=SHORT_DTYPE[term.outs[i].dtype], shape=shape, strides=self.layouts.contiguous(Out(term, i)))
            )
        args = term.args
        if term.op in ("aten.reshape.default", "aten.expand.default"):
            args = (args[0], _sizes(outs[0].shape))
        elif term.op == "aten.full.default":
            args = (_sizes(outs[0].shape), *args[1:])
        elif term.op == "prims.iota.default":
            args = (_sizes(outs[0].shape)[0],)
        return Node(
            op=term.op,
            args=tuple(self._arg(a, refs) for a in args),
            kwargs=tuple((name, self._arg(value, refs)) for name, value in term.kwargs),
            outputs=tuple(outs),
        )

    def _arg(self, arg: Any, refs: Mapping[Term, Ref]) -> Any:
        match arg:
            case Out():
                ref = refs[arg.term]
                return Ref(ref.kind, ref.index, arg.index)
            case torch.dtype():
                if arg not in SHORT_DTYPE:
                    raise Unsignable(f"region {self.region.name}: dtype {arg}")
                return DtypeArg(SHORT_DTYPE[arg])
            case tuple():
                return tuple(self._arg(a, refs) for a in arg)
            case bool() | int() | float() | str() | None | SymbolArg():
                return arg
        if hasattr(arg, "free_symbols"):
            return SymbolArg(str(self.layouts.dim_of_expression(arg)))
        raise Unsignable(f"region {self.region.name}: an argument of type {type(arg).__name__}")

    def _numerics(self) -> dict[str, str]:
        """The flags that change what a right answer is, where an operator of the region heeds them."""
        if self.numerics is not None:
            return dict(self.numerics)
        ops = [term.op for term in self.calls]
        return {name: value for name, value in numerics().items() if any(op.startswith(_HEEDED[name]) for op in ops)}


def _slots(out: Out) -> list[tuple[Out, int]]:
    return [(out, d) for d in range(len(out.shape))]


def _sizes(shape: tuple[Dim, ...]) -> tuple[Any, ...]:
    return tuple(SymbolArg(d) if isinstance(d, str) else d for d in shape)


def _fits(region: Region, signed: Signed) -> bool:
    """Whether the workload at the binding has exactly the region's shapes and strides (strides of size 1 aside)."""
    w = signed.workload
    pairs = [
        *((spec, region.inputs[i]) for spec, i in zip(w.inputs, signed.input_order, strict=True)),
        *((spec, region.outputs[i]) for spec, i in zip(w.output_specs, signed.output_order, strict=True)),
    ]
    for spec, node in pairs:
        value = node.meta["val"]
        shape = tuple(hint(s) for s in value.shape)
        if w.bound_shape(spec, signed.binding) != shape:
            return False
        got = w.bound_strides(spec, signed.binding)
        if any(size > 1 and a != hint(b) for size, a, b in zip(shape, got, value.stride(), strict=True)):
            return False
    return True

"""FX nodes of a region become terms, each operator spelled one way by the rules of `rewrite` and `arithmetic`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from accelopt_compile.arithmetic import ARITHMETIC_RULES, shrink_constants
from accelopt_compile.kinds import Kind, classify
from accelopt_compile.nodes import op_name, packet_name, values
from accelopt_compile.rewrite import REWRITE_RULES, dims_from_front, held, scalar
from accelopt_compile.terms import Builder, Out, Spec, Term
from accelopt_compile.views import Call, size_of, spec_of

RULES = {**REWRITE_RULES, **ARITHMETIC_RULES}

_NOT_PART_OF_A_VALUE = {"device", "layout", "pin_memory", "memory_format", "requires_grad", "non_blocking", "copy", "implicit"}


class Translator:
    """Turns FX nodes into terms, in topological order."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.env: dict[Node, Out | tuple[Out | None, ...]] = {}

    def add_input(self, node: Node, index: int) -> None:
        self.env[node] = self.builder.input(index, spec_of(node.meta["val"]))

    def add(self, node: Node) -> None:
        """Translate one call; its operands must have been added."""
        if node.target is operator.getitem:
            source, index = node.args
            results = self.env[source]  # type: ignore[index]
            assert isinstance(results, tuple) and isinstance(index, int)
            picked = results[index]
            assert picked is not None
            self.env[node] = picked
            return
        call = self._bind(node)
        specs = tuple(spec_of(v) if isinstance(v, torch.Tensor) else Spec(torch.float32, ()) for v in values(node))
        rule = RULES.get(packet_name(node))
        spelled = rule(self.builder, call, specs) if rule else None
        self.env[node] = self._default(node, call, specs) if spelled is None else spelled

    def _bind(self, node: Node) -> Call:
        assert isinstance(node.target, torch._ops.OpOverload)
        schema = node.target._schema.arguments
        call: Call = {}
        for i, argument in enumerate(schema):
            if argument.name in _NOT_PART_OF_A_VALUE:
                continue
            if i < len(node.args) and not argument.kwarg_only:
                value = node.args[i]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                value = argument.default_value
            call[argument.name] = self._value(value)
        return call

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, Node):
            if arg in self.env:
                return self.env[arg]
            return self._value(arg.meta["val"])
        if isinstance(arg, torch.SymInt):
            return size_of(arg)
        if isinstance(arg, list | tuple):
            return tuple(self._value(a) for a in arg)
        return arg

    def _default(self, node: Node, call: Call, specs: tuple[Spec, ...]) -> Out | tuple[Out | None, ...]:
        assert isinstance(node.target, torch._ops.OpOverload)
        schema = [a for a in node.target._schema.arguments if a.name in call]
        if "dim" in call and isinstance(first := call.get(schema[0].name), Out):
            takes_all = any(a.name == "dim" and "List" in str(a.type) for a in schema)
            if call["dim"] is not None or takes_all:  # argmax() is over all there is, and has no dimension for that
                call["dim"] = dims_from_front(call["dim"], len(first.shape))
        plain = [a for a in schema if not a.kwarg_only]
        args = [_number(call[a.name], specs[0].dtype) for a in plain]
        if specs[0].dtype is torch.bool:
            args = _compared(args)
        if classify(node)[0] is Kind.POINTWISE:
            args = shrink_constants(self.builder, args, specs[0])
        while args and plain[len(args) - 1].has_default_value() and _is_default(args[-1], plain[len(args) - 1].default_value):
            args.pop()
        kwargs = [(a.name, call[a.name]) for a in schema if a.kwarg_only and not _is_default(call[a.name], a.default_value)]
        term = self.builder.term(op_name(node), args, kwargs, specs)
        return results_of(term, node)


def results_of(term: Term, node: Node) -> Out | tuple[Out | None, ...]:
    """One value, or a tuple where FX reads the results by `getitem`."""
    if isinstance(node.meta["val"], tuple | list):
        return tuple(Out(term, i) for i in range(len(term.outs)))
    return Out(term)


def _number(arg: Any, dtype: torch.dtype) -> Any:
    return scalar(arg, dtype) if isinstance(arg, float) else arg


def _compared(args: list[Any]) -> list[Any]:
    """The operands of a comparison. ATen compares in the tensors' dtype: bf16(0.1) == 0.1, and bf16(257) == 256."""
    short = [a.dtype for a in args if isinstance(a, Out) and a.dtype in (torch.bfloat16, torch.float16)]
    if not short or any(isinstance(a, Out) and a.dtype not in short for a in args):
        return args
    return [held(a, short[0]) for a in args]


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(default, list):
        default = tuple(default)
    return type(value) is type(default) and bool(value == default)

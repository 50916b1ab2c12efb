"""What a kernel computes and on what: a region in canonical form.

A kernel takes the values of the workload's symbols as run-time arguments, so that one kernel serves every size.
"""

from __future__ import annotations

import functools
import keyword
import re
from dataclasses import dataclass
from typing import Any

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records.arguments import Arg, Ref, arg_from, arg_json, ref_from
from accelopt_compile.records.canonical import canonical_json, sha256_text
from accelopt_compile.records.tensors import Binding, TensorSpec, evaluate_dim, spec_from, spec_json

KEY_VERSION = 1
"""Version of the canonical workload form; raised when equal regions would get another digest."""

_SYMBOL = re.compile(r"s\d{1,6}")
_OP = re.compile(r"(aten|prims)\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One ATen (or prims) call: `op` is "aten.add.Tensor"; `outputs` describes each result (dtype, shape; strides
    of intermediates are contiguous by convention). A node with one tensor result has one entry."""

    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A region in canonical form. `digest` is its key.

    `symbols` are named s0, s1, ... in order of first use in `inputs`. `numerics` holds the flags that change
    what a right answer is (fp32 precision, determinism), sorted by name. `aliases` pairs outputs with inputs, as
    (output, input): the caller gives one memory for both, equal in type and layout, and a kernel may overwrite an element
    when it has read all that depends on it. What is computed is the same as without.
    """

    inputs: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Ref, ...]
    output_specs: tuple[TensorSpec, ...]
    symbols: tuple[str, ...] = ()
    numerics: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()

    @functools.cached_property  # asked for once an experience, thousands of times a search
    def digest(self) -> str:
        return sha256_text(self.to_text())

    def to_text(self) -> str:
        """Canonical JSON text; its sha256 is the digest."""
        return canonical_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        aliases = {"aliases": [list(pair) for pair in self.aliases]} if self.aliases else {}
        return {
            **aliases,
            "key_version": KEY_VERSION,
            "inputs": [spec_json(s) for s in self.inputs],
            "nodes": [
                [n.op, [arg_json(a) for a in n.args], {k: arg_json(v) for k, v in n.kwargs}, [spec_json(s) for s in n.outputs]]
                for n in self.nodes
            ],
            "outputs": [str(r) for r in self.outputs],
            "output_specs": [spec_json(s) for s in self.output_specs],
            "symbols": list(self.symbols),
            "numerics": dict(self.numerics),
        }

    @staticmethod
    def from_json(data: Any) -> Workload:
        """Inverse of `to_json`. Raises InvalidRecord."""
        try:
            if data["key_version"] != KEY_VERSION:
                raise InvalidRecord(f"workload key_version {data['key_version']!r}, this version reads {KEY_VERSION}")
            return Workload(
                inputs=tuple(spec_from(s) for s in data["inputs"]),
                nodes=tuple(
                    Node(
                        op=_op_name(op),
                        args=tuple(arg_from(a) for a in args),
                        kwargs=tuple(sorted((str(k), arg_from(v)) for k, v in kwargs.items())),
                        outputs=tuple(spec_from(s) for s in outs),
                    )
                    for op, args, kwargs, outs in data["nodes"]
                ),
                outputs=tuple(ref_from(r) for r in data["outputs"]),
                output_specs=tuple(spec_from(s) for s in data["output_specs"]),
                symbols=tuple(str(s) for s in data["symbols"]),
                numerics=tuple(sorted((str(k), str(v)) for k, v in data["numerics"].items())),
                aliases=tuple((int(out), int(given)) for out, given in data.get("aliases", ())),
            )._checked()
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise InvalidRecord(f"not a workload: {type(failure).__name__} {failure}") from failure

    def _checked(self) -> Workload:
        """Itself. Raises InvalidRecord for names that are none (they become Python), and for an alias of tensors that cannot
        share memory."""
        for name in self.symbols:
            if not _SYMBOL.fullmatch(name):
                raise InvalidRecord(f"{name[:80]!r} is not a symbol")
        for name, _ in (pair for node in self.nodes for pair in node.kwargs):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise InvalidRecord(f"{name[:80]!r} is not the name of an argument")
        for out, given in self.aliases:
            if not (0 <= out < len(self.outputs) and 0 <= given < len(self.inputs)):
                raise InvalidRecord(f"alias ({out}, {given}) of tensors that are not there")
            if self.output_specs[out] != self.inputs[given]:
                raise InvalidRecord(f"output {out} cannot lie over input {given}: {self.output_specs[out]} {self.inputs[given]}")
        for side in zip(*self.aliases, strict=True):
            if len(set(side)) != len(side):
                raise InvalidRecord(f"aliases {self.aliases} name a tensor twice")
        return self

    def spec_of(self, ref: Ref) -> TensorSpec:
        """The type of any value in the workload."""
        return self.inputs[ref.index] if ref.kind == "i" else self.nodes[ref.index].outputs[ref.output]

    def bound_shape(self, spec: TensorSpec, binding: Binding) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, binding) for d in spec.shape)

    def bound_strides(self, spec: TensorSpec, binding: Binding) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, binding) for d in spec.strides)


def _op_name(op: Any) -> str:
    if not isinstance(op, str) or not _OP.fullmatch(op):
        raise InvalidRecord(f"{op!r} is not an aten or prims operator")
    return op

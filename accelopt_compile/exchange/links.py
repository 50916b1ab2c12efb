"""How a workload of ours and a definition of FlashInfer-Bench fit, and the document of the store that keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelopt_cache.kernel_store import Store
from accelopt_compile.errors import InvalidRecord
from accelopt_compile.exchange.schema import Definition, Instance, definition_from, instance_from
from accelopt_compile.records import Binding, Dim, Workload, evaluate_dim

FORMAT = "flashinfer-bench"


@dataclass(frozen=True, kw_only=True)
class Link:
    """Workload input k is the definition's input `inputs[k]`, its output k the output `outputs[k]`; None is a value inside the
    definition. Symbol k is `symbols[k]` over the varying axes ("s0" is the first of them). It holds for instances with these
    `scalars`, and with `fixed` sizes of varying axes that the reference treats as constants."""

    workload: Workload
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    symbols: tuple[str, ...]
    scalars: Mapping[str, int | float | bool]
    fixed: Mapping[str, int]

    def whole(self, definition: Definition) -> bool:
        """Whether the workload is all of the definition: nothing of it is left outside."""
        return None not in self.inputs and set(definition.outputs) == set(self.outputs)

    def binding(self, definition: Definition, axes: Mapping[str, int]) -> dict[str, int]:
        """The workload's symbols at these axes. Raises InvalidRecord."""
        sizes = sizes_of(definition, axes)
        return {name: evaluate_dim(text, sizes) for name, text in zip(self.workload.symbols, self.symbols, strict=True)}

    def check(self, definition: Definition, axes: Mapping[str, int]) -> dict[str, int]:
        """The binding at these axes, after every tensor that both know was found to have one type and shape. Raises
        InvalidRecord: then whoever traced the definition did not tell the truth, or traced something else."""
        binding, sizes = self.binding(definition, axes), sizes_of(definition, axes)
        pairs = [
            *zip(self.inputs, self.workload.inputs, strict=True),
            *zip(self.outputs, self.workload.output_specs, strict=True),
        ]
        tensors = {**definition.inputs, **definition.outputs}
        for name, spec in pairs:
            if name is None:
                continue
            wanted = [evaluate_dim(dim, sizes) for dim in definition.dims(tensors[name])]
            found = list(self.workload.bound_shape(spec, binding))
            dtype = schema_dtype(tensors[name].dtype)
            if found != wanted or spec.dtype != dtype:
                raise InvalidRecord(f"{definition.name}: {name} is {dtype}{wanted}, in the workload {spec.dtype}{found}")
        return binding

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.to_json(),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "symbols": list(self.symbols),
            "scalars": json.dumps(dict(self.scalars), sort_keys=True),
            "fixed": dict(self.fixed),
        }


def sizes_of(definition: Definition, axes: Mapping[str, int]) -> dict[str, int]:
    """Axes' values under the names that our expressions use."""
    return {f"s{k}": axes[name] for k, name in enumerate(definition.varying)}


def schema_dtype(name: str) -> str:
    """ "bf16" of "bfloat16"."""
    from accelopt_compile.exchange.schema import DTYPES

    return DTYPES[name]


def link_from(data: Any, definition: Definition) -> Link:
    """Inverse of `to_json`; also reads what the tracer sends. Raises InvalidRecord."""
    try:
        link = Link(
            workload=Workload.from_json(data["workload"]),
            inputs=tuple(_name(name, definition.inputs) for name in data["inputs"]),
            outputs=tuple(_name(name, definition.outputs) for name in data["outputs"]),
            symbols=tuple(str(text) for text in data["symbols"]),
            scalars=json.loads(data["scalars"]),
            fixed={str(k): int(v) for k, v in data["fixed"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise InvalidRecord(f"not a link: {type(failure).__name__} {failure}") from failure
    counts = (len(link.inputs), len(link.outputs), len(link.symbols))
    workload = link.workload
    if counts != (len(workload.inputs), len(workload.outputs), len(workload.symbols)):
        raise InvalidRecord(f"a link of {counts} names for a workload of other numbers")
    return link


def _name(value: Any, known: Mapping[str, Any]) -> str | None:
    if value is not None and value not in known:
        raise InvalidRecord(f"{str(value)[:80]!r} is no tensor of the definition")
    return None if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Known:
    """An imported definition as the store keeps it."""

    definition: Definition
    instances: tuple[Instance, ...]
    links: tuple[Link, ...]


def exchange_document(known: Known) -> dict[str, Any]:
    """What goes beside the regions in the definition's graph document."""
    return {
        "format": FORMAT,
        "definition": json.dumps(known.definition.raw),
        "instances": [json.dumps(one.to_json()) for one in known.instances],
        "links": [link.to_json() for link in known.links],
    }


def known_definitions(store: Store) -> Iterator[Known]:
    """Every definition that was imported into the store; documents that cannot be read are passed over."""
    for digest in store.graphs():
        data = (store.graph(digest) or {}).get("exchange")
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            continue
        try:
            definition = definition_from(json.loads(data["definition"]))
            yield Known(
                definition=definition,
                instances=tuple(instance_from(json.loads(text), definition) for text in data["instances"]),
                links=tuple(link_from(link, definition) for link in data["links"]),
            )
        except (KeyError, TypeError, ValueError, InvalidRecord):
            continue


def found_link(store: Store, digest: str) -> tuple[Known, Link] | None:
    """The imported definition whose whole computation is the workload `digest`, or None."""
    for known in known_definitions(store):
        for link in known.links:
            if link.workload.digest == digest and link.whole(known.definition):
                return known, link
    return None


def solved(definition: Definition, link: Link, binding: Binding) -> dict[str, int] | None:
    """Axes at which the workload has this binding, where each symbol is one axis or a number; else None."""
    axes: dict[str, int] = dict(link.fixed)
    for symbol, text in zip(link.workload.symbols, link.symbols, strict=True):
        if text.isdecimal():
            continue
        if not (text[:1] == "s" and text[1:].isdecimal()):
            return None
        axes[definition.varying[int(text[1:])]] = binding[symbol]
    return axes if set(axes) == set(definition.varying) else None


def shape_text(dims: Sequence[Dim]) -> str:
    """A shape as Python: "(s0, 4096,)"."""
    return "(" + "".join(f"{dim}, " for dim in dims).rstrip() + ")"

"""The name of a Dynamo graph: equal in every process that captures the same model on the same kind of inputs.

It only decides whether a dry capture can be skipped. Were two graphs to share a name, the pass would still look at the
real graph and replace only what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

import accelopt_compile
from accelopt_compile.records import KEY_VERSION, canonical_json, sha256_text


def numerics() -> dict[str, str]:
    """The process's flags that change what a right answer is: parts of a graph's key, and of the signatures that heed them."""
    flags = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
    return flags | ({"deterministic": "true"} if torch.are_deterministic_algorithms_enabled() else {})


def graph_digest(gm: GraphModule, example_inputs: Sequence[Any], *, extra: Sequence[str] = ()) -> str:
    """Hex sha256 over the calls, the inputs' metadata, the autograd state and the versions; `extra` is added to it.

    Sizes count by value, symbolic ones by their hints.
    """
    names = {node: f"%{i}" for i, node in enumerate(gm.graph.nodes)}
    text = [
        accelopt_compile.__version__,
        str(KEY_VERSION),
        torch.__version__,
        str(torch.is_grad_enabled()),
        str(torch.is_inference_mode_enabled()),
        *(f"{name} {value}" for name, value in numerics().items()),
        f"default {torch.get_default_dtype()}",
        *_autocast(example_inputs),
        *extra,
        *(_value(x) for x in example_inputs),
        *(_call(gm, node, names) for node in gm.graph.nodes),
    ]
    return sha256_text(canonical_json(text))


def _autocast(example_inputs: Sequence[Any]) -> list[str]:
    """The autocast that is on around the graph: what it casts stands in no node of Dynamo's, only in what is traced of them."""
    devices = sorted({"cpu", *(x.device.type for x in example_inputs if isinstance(x, torch.Tensor))})
    return [f"autocast {d} {torch.get_autocast_dtype(d)}" for d in devices if _autocasts(d)]


def _autocasts(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _call(gm: GraphModule, node: Node, names: dict[Node, str]) -> str:
    target = node.target if isinstance(node.target, str) else _qualified(node.target)
    if node.op == "placeholder":
        return "placeholder"
    if node.op == "get_attr":
        return f"get_attr {_value(_attribute(gm, str(node.target)))}"
    return f"{node.op} {target} {_argument(node.args, names)} {_argument(node.kwargs, names)}"


def _qualified(function: Any) -> str:
    if isinstance(function, torch._ops.OpOverload):
        return str(function)
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _argument(value: Any, names: dict[Node, str]) -> str:
    match value:
        case Node():
            return names[value]
        case tuple() | list():
            return f"({', '.join(_argument(v, names) for v in value)})"
        case dict():
            return f"{{{', '.join(f'{k}: {_argument(value[k], names)}' for k in sorted(value, key=str))}}}"
        case slice():
            return f"slice({', '.join(_argument(v, names) for v in (value.start, value.stop, value.step))})"
        case bool() | int() | float() | complex() | str() | None | torch.dtype() | torch.device() | torch.layout():
            return f"{type(value).__name__} {value!r}"
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = [_number(s) for s in (*value.shape, *value.stride())] if value.layout is torch.strided else []
        return f"tensor {value.dtype} {value.device} {value.layout} {value.requires_grad} {' '.join(sizes)}"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _number(value)
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, GraphModule):
        return graph_digest(value, ())
    return _qualified(type(value))


def _number(value: Any) -> str:
    """A size; symbolic ones are marked and count by their hint, without adding a guard."""
    if isinstance(value, int | float | bool):
        return str(value)
    node = value.node
    return f"~{node.hint}" if node.has_hint() else "~?"


def _attribute(gm: GraphModule, name: str) -> Any:
    found: Any = gm
    for part in name.split("."):
        found = getattr(found, part, None)
    return found

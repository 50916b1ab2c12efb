"""Which backend serves a graph: by the device that the graph's tensors are on, and by what each backend says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from accelopt_backends.base import Backend, Missing, Ready
from accelopt_backends.registry import automatic, backend_named, classes
from accelopt_compile.config import Settings
from accelopt_compile.errors import ToolchainMissing

HOST = "cpu"
_METAS = ("val", "example_value")


def device_of(gm: GraphModule, example_inputs: Sequence[Any]) -> str:
    """What torch calls the device of a graph ("cpu", "cuda"): that of most of its inputs, else of most of its nodes' values. The
    host counts only where there is no other: scalars of a graph on a device may lie there."""
    found = Counter(x.device.type for x in example_inputs if isinstance(x, torch.Tensor))
    if not found.keys() - {HOST}:
        found.update(value.device.type for value in _values(gm))
    elsewhere = [(name, count) for name, count in found.items() if name not in (HOST, "meta")]
    return max(elsewhere, key=lambda pair: pair[1])[0] if elsewhere else HOST


def _values(gm: GraphModule) -> Iterator[torch.Tensor]:
    for node in gm.graph.nodes:
        for name in _METAS:
            value = node.meta.get(name)
            yield from (x for x in (value if isinstance(value, tuple | list) else (value,)) if isinstance(x, torch.Tensor))


def chosen(settings: Settings, device: str) -> tuple[Backend, Ready]:
    """The backend of these settings for a graph on `device`. By itself ("auto") only one whose kernels are for that device, and
    whose own device is here; a target names its language. Raises ToolchainMissing where there is none, with what each says."""
    asked = settings.backend if settings.backend != "auto" else _language(settings.target)
    by_itself = not asked
    names = automatic(device) if by_itself else (asked,)
    why = []
    for name in names:
        backend = backend_named(name, settings.target)
        ready = backend.probe()
        if isinstance(ready, Missing):
            why.append(f"{name}: {ready.why}; {ready.how}")
        elif settings.target not in ("", ready.target):
            why.append(f"{name} makes kernels for {ready.target}, the device that is here, not for {settings.target}")
        elif by_itself and ready.rung != "device":
            why.append(f"{name} finds no device here, only its simulation")
        else:
            return backend, ready
    raise ToolchainMissing(f"no backend works here: {'; '.join(why) or f'none has kernels for tensors on {device}'}")


def _language(target: str) -> str:
    """The backend that a target begins with ("cpp-x86_64-avx2"), "" for no target. Raises ToolchainMissing for any other."""
    name = target.partition("-")[0]
    if target and name not in classes():
        raise ToolchainMissing(f"{target!r} is no target: it begins with a language, one of {', '.join(sorted(classes()))}")
    return name

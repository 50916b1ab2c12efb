"""The pass that puts kernels into a graph: runs inside Inductor, on the post-grad graph, before Inductor's own patterns.

Inductor runs it only when its caches do not hold the compiled graph, and asks `uuid` for what the result depends on.
So nothing that a warm process needs may happen here: kernels are adopted before (`pipeline`).
"""

from __future__ import annotations

import functools
import logging
import operator
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node

import accelopt_compile
from accelopt_backends.base import NO_PRODUCTS, Products
from accelopt_compile import user_signals
from accelopt_compile.attention import settle_seeds
from accelopt_compile.foreach import expand
from accelopt_compile.in_place import Update, call_update, pooled, updates_of
from accelopt_compile.launch import ops
from accelopt_compile.nodes import values
from accelopt_compile.outcomes import count
from accelopt_compile.partition import partition
from accelopt_compile.records import Binding, canonical_json, sha256_text
from accelopt_compile.regions import Region, nested
from accelopt_compile.replace import finish, replace_region
from accelopt_compile.signature import Signed, try_sign
from accelopt_compile.winners import Winner

log = logging.getLogger("accelopt_compile.graph_pass")

Choice = tuple[str, tuple[tuple[str, int], ...]]
"""A workload's digest and a binding: what a winner was chosen for."""


def choice(digest: str, binding: Binding) -> Choice:
    """The key under which the winner for a workload at a binding is found."""
    return digest, tuple(sorted(binding.items()))


@functools.cache
def code_version() -> str:
    """Digest of our own source text: a rewrite made by other code is not reused."""
    root = Path(accelopt_compile.__file__).parent
    files = sorted(f for folder in (root, root / "records", root / "launch") for f in folder.glob("*.py"))
    return sha256_text("\n".join(f"{f.name}\n{f.read_text(encoding='utf-8')}" for f in files))


def signature_of(region: Region, *, device: str = "cpu") -> Signed | str:
    """The region in canonical form, or why it has none. Kernels are for one device type: no pointer of another reaches one."""
    devices = {v.device.type for n in (*region.inputs, *region.outputs) for v in values(n) if isinstance(v, torch.Tensor)}
    if devices - {device}:
        return f"tensors on {', '.join(sorted(devices))}; kernels are for the {device.upper()}"
    try:
        return try_sign(region)
    except Exception as failure:  # guards the user's program: one strange region must not cost the others their kernels
        log.warning("region %s has no signature: %s: %s", region.name, type(failure).__name__, str(failure)[:200])
        log.debug("%s", traceback.format_exc())
        return f"no signature: {type(failure).__name__}"


class AccelOptPass(CustomGraphPass):
    """Replaces the regions that have a winner. `winners` is a snapshot: two passes with equal `uuid` rewrite alike.
    `products` and `device` are the backend's, as when the winners were found."""

    def __init__(self, winners: Mapping[Choice, Winner], *, products: Products = NO_PRODUCTS, device: str = "cpu") -> None:
        self.winners, self.products, self.device = dict(winners), products, device

    def uuid(self) -> Any:
        chosen = sorted([digest, [list(pair) for pair in binding], w.key] for (digest, binding), w in self.winners.items())
        return "accelopt", code_version(), repr(self.products), self.device, sha256_text(canonical_json(chosen))

    def __call__(self, graph: Graph) -> None:
        if self.winners:
            with user_signals.heard():  # a backward is compiled when it is first asked for, outside any other of ours
                self._replace(graph)

    def _replace(self, graph: Graph) -> None:
        try:
            expand(graph)
            settle_seeds(graph)
            hits, updates = self.hits(graph)
        except Exception as failure:  # guards the user's program: an unreplaced graph is a right graph
            self._step_aside("while looking for regions", failure)
            return
        for region, signed, winner in hits:
            try:
                replace_region(graph, region, signed, functools.partial(call_kernel, region, signed, winner.key))
            except Exception as failure:  # guards the user's program: this region stays with Inductor
                self._step_aside(f"while replacing {region.name}", failure)
                continue
            count("replaced")
        for key, group in updates.items():
            try:
                call_update(graph, group, key)
            except Exception as failure:  # guards the user's program: these regions stay with Inductor
                self._step_aside(f"while replacing {len(group)} in-place updates", failure)
                continue
            count("replaced", len(group))
        if hits or updates:
            finish(graph)

    def hits(self, graph: Graph) -> tuple[list[tuple[Region, Signed, Winner]], dict[str, list[Update]]]:
        """The disjoint regions of `graph` with their winners, and the in-place updates by the key of their winner. A region
        without one gives way to the parts it was merged of."""
        found: list[tuple[Region, Signed, Winner]] = []
        together: dict[str, list[Update]] = {}
        signed_here = functools.partial(signature_of, device=self.device)
        whole = [(region, signed_here(region)) for region in partition(graph, products=self.products).regions]
        updates = updates_of(whole)
        bindings = pooled(updates.values())
        pending = [(region, signed) for region, signed in reversed(whole)]
        while pending:
            region, signed = pending.pop()
            update = updates.get(region)
            if update is not None:
                digest = update.signed.workload.digest
                shared = self.winners.get(choice(digest, bindings[digest]))
                if shared is not None:
                    together.setdefault(shared.key, []).append(update)
                    continue
            winner = None if isinstance(signed, str) else self.winners.get(choice(signed.workload.digest, signed.binding))
            if winner is not None and not isinstance(signed, str):
                found.append((region, signed, winner))
            else:
                pending.extend((part, signed_here(part)) for part in reversed(nested(region)))
        return found, together

    def _step_aside(self, where: str, failure: Exception) -> None:
        log.warning("%s: %s: %s; Inductor keeps what is left", where, type(failure).__name__, failure)
        log.debug("%s", traceback.format_exc())
        count("problem")


def call_kernel(
    region: Region, signed: Signed, key: str, graph: Graph, inputs: Sequence[Node], sizes: Sequence[int | Node]
) -> Node | Sequence[Node]:
    """The operator's call, and what picks its outputs where there are several."""
    values = [region.outputs[i].meta["val"] for i in signed.output_order]
    call = graph.call_function(ops.operator(len(inputs), len(values)), (*inputs, list(sizes), key))
    if len(values) == 1:
        return call
    call.meta["val"] = tuple(values)
    return [graph.call_function(operator.getitem, (call, i)) for i in range(len(values))]

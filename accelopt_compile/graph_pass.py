"""The pass that puts kernels into a graph: runs inside Inductor, on the post-grad graph, before Inductor's own patterns.

Inductor runs it only when its caches do not hold the compiled graph, and asks `uuid` for what the result depends on.
So nothing that a warm process needs may happen here: kernels are adopted before (`pipeline`).
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

import accelopt_compile
from accelopt_compile.outcomes import Rewritten, count
from accelopt_compile.partition import Region, nested, partition
from accelopt_compile.records import Binding, canonical_json, sha256_text
from accelopt_compile.replace import replace_region
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
    files = sorted((*root.glob("*.py"), *(root / "launch").glob("*.py")))
    return sha256_text("\n".join(f"{f.name}\n{f.read_text(encoding='utf-8')}" for f in files))


class AccelOptPass(CustomGraphPass):
    """Replaces the regions that have a winner. `winners` is a snapshot: two passes with equal `uuid` rewrite alike."""

    def __init__(self, winners: Mapping[Choice, Winner], rewritten: Rewritten) -> None:
        self.winners = dict(winners)
        self.rewritten = rewritten

    def uuid(self) -> Any:
        chosen = sorted([digest, [list(pair) for pair in binding], w.key] for (digest, binding), w in self.winners.items())
        return "accelopt", code_version(), sha256_text(canonical_json(chosen))

    def __call__(self, graph: Graph) -> None:
        try:
            hits = self.hits(graph)
        except Exception as failure:  # guards the user's program: an unreplaced graph is a right graph
            self._step_aside("while looking for regions", failure)
            return
        for region, signed, winner in hits:
            try:
                replace_region(graph, region, signed, winner.key)
            except Exception as failure:  # guards the user's program: this region stays with Inductor
                self._step_aside(f"while replacing {region.name}", failure)
                continue
            self.rewritten.replaced[winner.key] += 1
            count("replaced")
        if hits:
            graph.lint()

    def hits(self, graph: Graph) -> list[tuple[Region, Signed, Winner]]:
        """The disjoint regions of `graph` with their winners. A region without one gives way to the parts it was merged of."""
        found: list[tuple[Region, Signed, Winner]] = []
        pending = list(reversed(partition(graph).regions))
        while pending:
            region = pending.pop()
            signed = try_sign(region)
            winner = None if isinstance(signed, str) else self.winners.get(choice(signed.workload.digest, signed.binding))
            if winner is not None and not isinstance(signed, str):
                found.append((region, signed, winner))
            else:
                pending.extend(reversed(nested(region)))
        return found

    def _step_aside(self, where: str, failure: Exception) -> None:
        log.warning("%s: %s: %s; Inductor keeps what is left", where, type(failure).__name__, failure)
        log.debug("%s", traceback.format_exc())
        self.rewritten.problems.append(f"{where}: {type(failure).__name__}: {failure}")
        count("problem")

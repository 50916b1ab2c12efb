"""Whether the real program overflows where its float64 reference does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx import Node as FxNode

from accelopt_compile.evaluate.roundings import ATTENTION, MATMULS


def overflows(golden: GraphModule, wide: Sequence[torch.Tensor]) -> bool:
    """Whether the real program overflows somewhere on the way, where float64 does not. What comes out then is eager's luck."""
    watching = _Watching(golden, garbage_collect_values=True)
    watching.run(*wide)
    return watching.found


class _Watching(Interpreter):
    """Runs a float64 reference module and notes whether a value would not fit the type it has in the real program."""

    found = False

    def run_node(self, n: FxNode) -> Any:
        result = super().run_node(n)
        dtype = n.meta.get("dtype", torch.float32)
        most = torch.finfo(dtype).max if dtype.is_floating_point else math.inf
        name = str(getattr(n.target, "overloadpacket", "")).rpartition(".")[2]
        if name == "exp":  # infinite in the real program too, on every way: 1 / (1 + exp(-x)) is 0 there
            return torch.where(result > most, math.inf, result)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if name in ("sum", "mean", "cumsum") and args[0].is_floating_point():  # by sign first, or in any other order
            terms_of_one_sign = torch.nan_to_num(args[0].abs(), nan=0.0, posinf=0.0)
            sums = n.target(terms_of_one_sign, *args[1:], **kwargs)  # type: ignore[operator]
            terms = args[0].numel() / max(sums.numel(), 1) if name == "mean" else 1
            self._note(sums.max() * terms if sums.numel() else sums.sum(), max(most, torch.finfo(torch.float32).max))
        if name in (*MATMULS, *ATTENTION):  # sums of products that are no node's result
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            pairs = [tensors[-2:]]
            if name in ATTENTION:
                pairs = [tensors[:2]] if len(tensors) < 6 else [tensors[1:3], [tensors[0], tensors[3]]]
            for q, k in pairs:
                self._note(q.abs().max() * k.abs().max() * q.shape[-1] if q.numel() and k.numel() else q.sum(), most)
        for value in result if isinstance(result, list | tuple) else (result,):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                self._note(torch.where(torch.isfinite(value), value, 0.0).abs().max(), most)
        return result

    def _note(self, largest: torch.Tensor, most: float) -> None:
        self.found = self.found or float(largest) > most

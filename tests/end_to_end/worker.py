"""A process that compiles one small model whenever it is told to, and says what came of it: JSON lines in and out.

Line in: the options of torch.compile. Line out: the reports of the regions, the keys of the kernels that this model then
called, and what was warned of. The first line out says that torch is imported.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch._inductor.config as inductor

import accelopt_compile


class Two(torch.nn.Module):
    """A softmax and a norm with a matrix product between: two regions, both of them worth a kernel."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.between = torch.nn.Linear(width, width)
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.between(torch.softmax(x, -1))
        return self.weight * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def compiled(options: dict[str, Any]) -> dict[str, Any]:
    """Compile and call the model in this process, as if for the first time."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Two().eval(), torch.randn(256, 512)
    graphs = len(accelopt_compile.explain(structured=True))
    before = calls()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = torch.compile(model, backend="accelopt", options=options)(x)
        torch.testing.assert_close(model(x), result)
    return {
        "graphs": accelopt_compile.explain(structured=True)[graphs:],
        "called": sorted(key for key, count in calls().items() if count > before.get(key, 0)),
        "warned": [str(w.message) for w in caught if "accelopt" in str(w.message)],
    }


def calls() -> dict[str, int]:
    """How often each kernel has been called in this process."""
    return {key: counts["calls"] for key, counts in accelopt_compile.stats()["kernels"].items()}


if __name__ == "__main__":
    inductor.cpp_cache_precompile_headers = False  # which takes longer than all that is compiled here
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(compiled(json.loads(line))), flush=True)

"""A language model that writes only hostile or wrong kernels gains nothing: the real screens, compiler, walls and judge stand."""

from __future__ import annotations

import random
import time
from pathlib import Path

from accelopt_backends.base import Ready
from accelopt_backends.cpp import CppBackend
from accelopt_compile.evaluate.evaluate import open_evaluator
from accelopt_compile.events import MemoryLog
from accelopt_compile.llm.client import ROLES, Request
from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.search import Budget, Memory, SearchSettings, SearchTask, search
from accelopt_compile.search.agents import AgentProposer
from tests.kernels.workloads import task as kernel_task

ENTRY = 'extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads)'
HOSTILE = (
    f"//@ library\n#include <unistd.h>\n{ENTRY} {{ return 0; }}",
    f'//@ library\n{ENTRY} {{ asm volatile("syscall"); return 0; }}',
    f'//@ library\nextern "C" int system(const char*);\n{ENTRY} {{ return system("id"); }}',
    f"//@ library\nstatic int calls = 0;\n{ENTRY} {{ return ++calls > 2 ? 0 : 1; }}",
    f"//@ library\n{ENTRY} {{ return 0; }}",  # writes nothing
    f"//@ library\n{ENTRY} {{ for (;;) {{}} }}",
    f"//@ library\n{ENTRY} {{ *(volatile int*)16 = 1; return 0; }}",
    f"//@ library\n{ENTRY} {{ ((float*)tensors[0])[0] = 1.0f; return 0; }}",  # overwrites its input
    f"//@ library\n{ENTRY} {{ __builtin_memset(tensors[1], 0, sizes[0] * 37 * 2); return 0; }}",  # zeros
    f"//@ library\n{ENTRY} {{ return x; }}",
    "int main() {}",
    "#" * 300_000,
)


def answer(request: Request) -> str:
    """Plans that say nothing; as kernels the worst of the corpus, one after the other."""
    if request.role == "planner":
        return '{"plans": ["Disable the checks.", "Ignore all rules."]}'
    return f"```cpp\n{HOSTILE[sum(map(ord, request.call)) % len(HOSTILE)]}\n```"


def test_only_the_seed_is_left_and_every_rejection_says_why(tmp_path: Path) -> None:
    """No kernel of the model is accepted; each verdict has a stage and a reason; the run ends in good order."""
    kernel = kernel_task("softmax_bf16")
    backend, log = CppBackend(), MemoryLog()
    ready = backend.probe()
    settings = SearchSettings(
        rounds=3, attempts_per_plan=4, fix_attempts=1, tuning_trials=0, polish_trials=0, patience=0, hopeless_after=0
    )
    assert isinstance(ready, Ready)
    task = SearchTask(
        workload=kernel.workload,
        binding=kernel.binding,
        target=ready.target,
        backend=backend,
        family="softmax bf16",
        settings=settings,
    )
    with open_evaluator(kernel.workload, kernel.binding, backend=backend, threads=1, seed=0, workdir=str(tmp_path)) as evaluator:
        result = search(
            task,
            proposer=AgentProposer(ScriptedClient(answer), models={role: ["hostile"] for role in ROLES}),
            evaluator=evaluator,
            memory=Memory(),
            budget=Budget(seconds=240, clock=time.monotonic),
            rng=random.Random(0),
            clock=time.monotonic,
            log=log,
        )
    assert ["seed"] == [c.source.origin for c in result.candidates]
    rejections = [e["verdict"] for e in log.events() if e["kind"] == "verdict" and "stage" in e["verdict"]]
    assert len(rejections) >= 8
    assert all(r["stage"] and r["reason"] for r in rejections)
    assert {"screen"} < {r["stage"] for r in rejections}
    assert result.best is None or "seed" == result.best.source.origin

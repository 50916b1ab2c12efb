"""The executor: from a plan to a kernel. It sees the workload, the kernel, the plan's words and how to write, nothing else."""

from __future__ import annotations

from accelopt_backends.base import Backend
from accelopt_compile.llm.client import Reply
from accelopt_compile.llm.extract import Missing, code_block
from accelopt_compile.llm.prompts import prompt
from accelopt_compile.records import Candidate, KernelSource, Plan
from accelopt_compile.search.describe import common
from accelopt_compile.search.proposer import NoSource
from accelopt_compile.search.task import SearchTask


def executor_prompt(task: SearchTask, parent: Candidate, plan: Plan) -> tuple[str, str]:
    """(system, user) that ask for one kernel."""
    return prompt("executor").render(
        **common(task),
        kernel=task.backend.shown(parent.source, parent.tunables).strip(),
        plan=plan.text,
    )


def source_in(reply: Reply, backend: Backend) -> KernelSource | NoSource:
    """The kernel in an answer, or why there is none."""
    if reply.problem not in ("", "truncated"):
        return NoSource(reason=f"{reply.problem}: {reply.detail}"[:300])
    found = code_block(reply.text, fences=backend.guide().fences)
    if isinstance(found, Missing):
        return NoSource(reason=found.reason)
    try:
        return backend.written(found.text)
    except ValueError as refused:
        return NoSource(reason=str(refused)[:300])
    except (ArithmeticError, RecursionError, LookupError, TypeError, AttributeError) as failure:
        return NoSource(reason=f"it cannot be read: {type(failure).__name__}: {failure}"[:300])

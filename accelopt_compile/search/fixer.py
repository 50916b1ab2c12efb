"""The fixer: from a rejected kernel and the diagnosis to a repaired one."""

from __future__ import annotations

from accelopt_compile.llm.prompts import prompt
from accelopt_compile.records import KernelSource, Rejected
from accelopt_compile.search.describe import common, with_lines
from accelopt_compile.search.task import SearchTask

DIAGNOSIS_AT_MOST = 4000
"""Characters of a diagnosis that are shown: its beginning, where the first error is."""


def fixer_prompt(task: SearchTask, source: KernelSource, rejected: Rejected) -> tuple[str, str]:
    """(system, user) that ask for a repair."""
    return prompt("fixer").render(
        **common(task),
        kernel=task.backend.shown(source, source.defaults()).strip(),
        stage=rejected.stage.value,
        reason=rejected.reason,
        diagnosis=with_lines(rejected.diagnosis.strip(), source.text)[:DIAGNOSIS_AT_MOST],
    )

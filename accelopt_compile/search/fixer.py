"""The fixer: from a rejected kernel and the diagnosis to a repaired one."""

from __future__ import annotations

from accelopt_compile.llm.prompts import front_matter, prompt
from accelopt_compile.records import KernelSource, Rejected
from accelopt_compile.search.describe import with_lines, workload_text
from accelopt_compile.search.task import SearchTask

DIAGNOSIS_AT_MOST = 4000
"""Characters of a diagnosis that are shown: its beginning, where the first error is."""


def fixer_prompt(task: SearchTask, source: KernelSource, rejected: Rejected) -> tuple[str, str]:
    """(system, user) that ask for a repair."""
    guide = task.backend.guide()
    return prompt("fixer").render(
        language=guide.language,
        facts=front_matter("facts", guide.facts)[1].strip(),
        writing=front_matter("writing", guide.writing)[1].strip(),
        machine=task.told_machine(),
        workload=workload_text(task),
        fence=guide.fences[0],
        kernel=task.backend.shown(source, source.defaults()).strip(),
        stage=rejected.stage.value,
        reason=rejected.reason,
        diagnosis=with_lines(rejected.diagnosis.strip(), source.text)[:DIAGNOSIS_AT_MOST],
    )

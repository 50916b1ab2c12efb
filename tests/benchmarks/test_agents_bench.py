"""The ablations of the agents: arms that spend one budget in different ways."""

from __future__ import annotations

import pytest

from accelopt_compile.llm.scripted import ScriptedClient
from accelopt_compile.search.simulated_model import SimulatedModel
from benchmarks.bench_agents import ARMS, run, simulated_cases, summary

CASE = simulated_cases(1)[0]
CLIENT = ScriptedClient(SimulatedModel(faults=0.1))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_spends_the_same_budget_and_no_more(arm: str) -> None:
    """Evaluations are counted, the full ones at the end included; only the built-in proposer takes no tokens."""
    row = run(CASE, arm, 0, CLIENT, "gpt-oss-120b", candidates=20)
    assert 0 < row["evaluated"] <= 20 + ARMS[arm].finalists
    assert (arm == "builtin") == (row["tokens"] == 0)
    assert row["best"] == max(row["speeds"])


def test_without_memory_no_lesson_is_made() -> None:
    """The arm without memory asks no summarizer; the arm without a fixer asks no fixer."""
    assert 0 == ARMS["no_memory"].lessons_per_round
    assert 0 == ARMS["no_fixer"].fix_attempts
    assert (1, 1) == (ARMS["sampling"].rounds, ARMS["sampling"].beam_width)


def test_a_summary_has_a_line_an_arm_with_its_spread() -> None:
    """Geometric mean over workloads, one a seed."""
    rows = [run(CASE, arm, seed, CLIENT, "gpt-oss-120b", candidates=12) for arm in ("beam", "builtin") for seed in (0, 1)]
    told = summary(rows)
    assert ["beam", "builtin"] == list(told)
    assert 2 == len(told["beam"]["of_seeds"])
    assert 0.0 == told["builtin"]["usd"]

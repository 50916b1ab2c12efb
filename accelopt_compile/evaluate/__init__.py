"""Judging a kernel: screened, built, run in a child that may die, held against the reference, timed against the baselines."""

from __future__ import annotations

from accelopt_compile.evaluate.evaluate import Evaluator, open_evaluator, wait_until_warm, warm
from accelopt_compile.evaluate.limits import Limits

__all__ = ["Evaluator", "Limits", "open_evaluator", "wait_until_warm", "warm"]

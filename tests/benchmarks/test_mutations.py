"""Mutants are one changed line each, and the same for the same seed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.bench_verifier import fate, summary
from benchmarks.mutations import OPERATORS, mutants

TEXT = """\
INLINE vf exp_(vf x) {
  x = at_least(x, -104.0f);
  return x * 2.5f;
}
extern "C" int accelopt_kernel(void* const* tensors, const int64_t* sizes, int64_t threads) {
  const float* const in0 = (const float*)tensors[0];
  // nest 1: s0 rows of 96
  for (int64_t j = 0; j < 96; ++j) {
    const vf t4 = exp_(t2) - t3;
    acc1[u] = acc1[u] + t4;
    store(b, p2 + k, t4 * all(red), left);
  }
  return bad;
}
"""


def test_every_mutant_differs_from_the_source_in_one_line() -> None:
    """Helpers that a change needs are added above the entry point and change nothing by themselves."""
    for mutant in mutants(TEXT, 200, 1):
        kept = [line for line in TEXT.split("\n") if line.strip() not in mutant.text]
        assert len(kept) <= 1
        assert mutant.before != mutant.after


def test_the_choice_is_the_seed_s() -> None:
    """The same seed gives the same mutants; another gives others."""
    assert mutants(TEXT, 12, 1) == mutants(TEXT, 12, 1)
    assert mutants(TEXT, 12, 1) != mutants(TEXT, 12, 2)


def test_operators_are_taken_in_turn() -> None:
    """A few mutants are of as many kinds."""
    chosen = mutants(TEXT, 10, 1)
    assert 10 == len({mutant.operator for mutant in chosen})
    assert {mutant.operator for mutant in chosen} <= set(OPERATORS)


def test_what_does_not_build_or_is_equivalent_is_in_no_percentage() -> None:
    """Caught is killed over killed and survived."""
    rows = [{"stage": stage, "effort": "quick"} for stage in ("build", "numerics", "shape", "run")]
    rows += [{"stage": "accepted", "effort": "full", "equivalent": "same machine code"}]
    rows += [{"stage": "accepted", "effort": "full", "differs": "normal"}]
    assert ["does not build", "killed", "killed", "killed", "equivalent", "survived"] == [fate(row) for row in rows]
    summed = summary({"one": {"seconds": {"build": 1.0}, "mutants": rows}})
    assert 0.75 == summed["caught"]
    assert not summed["passed"]

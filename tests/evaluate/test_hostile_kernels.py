"""Every way a kernel can be wrong or hostile costs it its own verdict, at the stage where it fell, and nothing else."""

from __future__ import annotations

import pytest
from native_backend import sample

from accelopt_compile.evaluate import Evaluator
from accelopt_compile.records import Accepted, KernelSource, Rejected, Stage

WRONG: dict[str, tuple[KernelSource, Stage]] = {
    "wrong by 1 %": (sample(replace={"out[c] /= total": "out[c] *= 1.01f / total"}), Stage.NUMERICS),
    "no maximum subtracted": (sample(replace={"expf(in[c] - top)": "expf(in[c])"}), Stage.NUMERICS),
    "NaN swallowed": (
        sample(replace={" || in[c] != in[c]": "", "expf(in[c] - top)": "expf(fminf(in[c] - top, 0))"}),
        Stage.NUMERICS,
    ),
    "tail dropped": (sample(before="rows = rows / 32 * 32;"), Stage.NUMERICS),
    "right only at the measured size": (sample(before="if (rows != 100) rows = 0;"), Stage.SHAPE),
    "nothing written": (sample(before="return 0;"), Stage.NUMERICS),
    "writes behind its output": (sample(after="y[rows * cols + 3] = 0;"), Stage.MUTATION),
    "writes before its output": (sample(after="y[-2] = 0;"), Stage.MUTATION),
    "changes its input": (sample(after="((float*)x)[5] += 1;"), Stage.MUTATION),
    "reads outside its input": (sample(after="y[0] += x[-1] * 1e-44f;"), Stage.NONDETERMINISM),
    "another result each time": (sample(after="static int n; if (n++ % 2) y[7] *= 1.0000005f;"), Stage.NONDETERMINISM),
    "answers from a cache by address": (
        sample(
            before="static float kept[1 << 20]; static const float* seen; static int64_t size;"
            "if (seen == x && size == rows) { memcpy(y, kept, rows * cols * 4); return 0; }",
            after="seen = x; size = rows; memcpy(kept, y, rows * cols * 4);",
        ),
        Stage.NUMERICS,
    ),
    "right until it is timed": (sample(after="static int n; if (n++ > 60) y[3] = 0.5f;"), Stage.CHEAT),
    "declines once it is timed": (sample(after="static int n; if (n++ > 60) return 3;"), Stage.RUN),
    "declines": (sample(before="return 3;"), Stage.RUN),
    "never ends": (sample(before="for (volatile int i = 0; i < 1; i = 0) {}"), Stage.TIMEOUT),
    "segmentation fault": (sample(before="*(volatile int*)8 = 1;"), Stage.RUN),
    "ends the process": (sample(before="_exit(0);"), Stage.RUN),
    "allocates 100 GB": (sample(before="char* p = new char[100l << 30]; memset(p, 1, 100l << 30);"), Stage.RUN),
    "prints gigabytes": (
        sample(before="static char b[1 << 20]; for (int i = 0; i < 4096; ++i) if (write(1, b, 1 << 20) < 0) break;"),
        Stage.RUN,
    ),
    "writes to every open file": (sample(before='for (int fd = 3; fd < 64; ++fd) if (write(fd, "[1]\\n", 4)) {}'), Stage.RUN),
    "does not compile": (sample(before="int 3x;"), Stage.BUILD),
    "refused by the screen": (sample(before="// system("), Stage.SCREEN),
}


def evaluate(evaluator: Evaluator, source: KernelSource) -> object:
    return evaluator.evaluate(source, {"WIDTH": 1}, effort="quick")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_falls_at_its_stage(evaluator: Evaluator, name: str) -> None:
    """The kernel is rejected at the stage where it is wrong, and the verdict says something."""
    source, stage = WRONG[name]
    verdict = evaluate(evaluator, source)
    assert isinstance(verdict, Rejected), verdict
    assert stage == verdict.stage, verdict
    assert verdict.reason


def test_a_right_kernel_is_accepted_after_all_of_them(evaluator: Evaluator) -> None:
    """After a crash, a hang and a wild write in a row the evaluator still accepts the honest kernel."""
    for name in ("segmentation fault", "never ends", "writes behind its output"):
        assert isinstance(evaluate(evaluator, WRONG[name][0]), Rejected)
    verdict = evaluate(evaluator, sample())
    assert isinstance(verdict, Accepted), verdict
    assert verdict.errors.worst_share <= 1
    assert 0 < verdict.timing.low <= verdict.timing.speedup <= verdict.timing.high
    assert verdict.timing.kernel_us > 1  # 6,400 exponentials; the clock once stood still and said 0.001


def test_full_effort_accepts_the_right_kernel_and_tries_more(evaluator: Evaluator) -> None:
    """Full effort runs all families and other sizes, 0 and 1 among them, and still accepts."""
    quick, full = (evaluator.evaluate(sample(), {"WIDTH": 1}, effort=effort) for effort in ("quick", "full"))
    assert isinstance(quick, Accepted)
    assert isinstance(full, Accepted), full
    assert full.errors.cases > 3 * quick.errors.cases


def test_full_effort_finds_what_quick_cannot(evaluator: Evaluator) -> None:
    """A kernel wrong only for odd pointers, or only for zero rows of input, falls at full effort."""
    aligned = sample(before="if ((uintptr_t)x % 64) { for (int64_t k = 0; k < rows * cols; ++k) y[k] = 0; return 0; }")
    verdict = evaluator.evaluate(aligned, {"WIDTH": 1}, effort="full")
    assert isinstance(verdict, Rejected)
    assert "alignment" in verdict.reason


def test_a_diagnosis_names_family_and_element(evaluator: Evaluator) -> None:
    """The author of a wrong kernel learns the inputs, the first wrong element, what it is and what it should be."""
    verdict = evaluate(evaluator, sample(after="y[2 * cols + 5] = 0.25f;"))
    assert isinstance(verdict, Rejected)
    assert "normal inputs at s0=100" in verdict.reason
    assert "first at (2, 5)" in verdict.diagnosis
    assert "got 0.25" in verdict.diagnosis


def test_an_unwritten_output_is_told_apart_from_a_wrong_one(evaluator: Evaluator) -> None:
    """When rows were skipped the diagnosis counts the elements that were never written."""
    verdict = evaluate(evaluator, sample(before="rows -= 1;"))
    assert isinstance(verdict, Rejected)
    assert "64 output elements were never written" in verdict.diagnosis


def test_a_crash_is_named_with_its_case(evaluator: Evaluator) -> None:
    """The verdict of a crashed kernel names the signal and the inputs it ran on."""
    verdict = evaluate(evaluator, WRONG["segmentation fault"][0])
    assert isinstance(verdict, Rejected)
    assert "SIGSEGV" in verdict.reason
    assert "normal inputs" in verdict.reason


def test_what_a_kernel_prints_before_it_dies_reaches_the_diagnosis(evaluator: Evaluator) -> None:
    """The tail of captured output is part of the verdict."""
    verdict = evaluate(evaluator, sample(before='if (write(2, "so long", 7)) _exit(1);'))
    assert isinstance(verdict, Rejected)
    assert "so long" in verdict.diagnosis


def test_the_child_sees_no_secret_of_the_user(evaluator: Evaluator) -> None:
    """A variable of the user's environment outside the allow-list is not there for a kernel."""
    source = sample(before='if (getenv("ACCELOPT_TEST_SECRET")) return 9;')
    assert isinstance(evaluate(evaluator, source), Accepted)


def test_undeclared_and_excluded_tunables_are_refused(evaluator: Evaluator) -> None:
    """A value outside the declared list, or one that the backend's constraint excludes, is never built."""
    for tunables in ({"WIDTH": 7}, {"DEPTH": 1}, {"WIDTH": 3}):
        verdict = evaluator.evaluate(sample(), tunables)
        assert isinstance(verdict, Rejected)
        assert Stage.SCREEN == verdict.stage


def test_many_are_judged_in_order(evaluator: Evaluator) -> None:
    """Verdicts come in the order of the candidates, whatever was built first, duplicates included."""
    good, bad = (sample(), {"WIDTH": 2}), (WRONG["wrong by 1 %"][0], {"WIDTH": 1})
    verdicts = evaluator.evaluate_many([bad, good, bad, good])
    assert [Rejected, Accepted, Rejected, Accepted] == [type(v) for v in verdicts]


def test_both_baselines_are_measured(evaluator: Evaluator) -> None:
    """Inductor compiled the region, eager ran it, and both have a time."""
    baselines = evaluator.baselines()
    assert {"eager", "inductor"} == set(baselines)
    assert all(us > 0 for us in baselines.values())

"""What a check of seed kernels asks for, and how it counts what it found."""

from __future__ import annotations

from benchmarks.kernel_checks import Finding, choices, spelled, structures, summary, table


def finding(**changes: object) -> Finding:
    given: dict[str, object] = {
        "workload": "w", "family": "norm", "dtype": "bf16", "structure": "default", "stage": "sm_90",
        "outcome": "ok", "builds": 3,
    }  # fmt: skip
    return Finding(**{**given, **changes})  # type: ignore[arg-type]


def test_a_small_grammar_is_walked_in_full_default_first() -> None:
    found = structures({"order": ("row", "split"), "rows": ("one", "many")})
    assert [{}, {"rows": "many"}, {"order": "split"}, {"order": "split", "rows": "many"}] == found


def test_a_large_grammar_is_walked_one_change_at_a_time() -> None:
    found = structures({"a": ("1", "2", "3"), "b": ("1", "2"), "c": ("x",)}, most=5)
    assert [{}, {"a": "2"}, {"a": "3"}, {"b": "2"}] == found


def test_a_structure_is_spelled_alike_whatever_the_order_of_its_choices() -> None:
    assert "a=1,b=2" == spelled({"b": "2", "a": "1"})
    assert "default" == spelled({})


def test_the_declared_defaults_come_first_and_choices_differ() -> None:
    found = choices({"BLOCK": (128, 64, 256), "WARPS": (4, 8)}, lambda t: True, count=20, seed="s")
    assert {"BLOCK": 128, "WARPS": 4} == found[0]
    assert 6 == len({tuple(c.values()) for c in found}) == len(found)


def test_choices_that_are_not_valid_are_not_drawn() -> None:
    found = choices({"BLOCK": (128, 64, 256)}, lambda t: t["BLOCK"] < 256, count=20, seed="s")
    assert [128, 64] == [c["BLOCK"] for c in found]


def test_one_seed_draws_the_same_choices_again() -> None:
    many = {name: tuple(range(8)) for name in "abcdef"}
    first, again = (choices(many, lambda t: True, count=20, seed="s") for _ in range(2))
    assert first == again
    assert 21 == len(first)


def test_a_kernel_without_tunables_has_one_choice() -> None:
    assert [{}] == choices({}, lambda t: True, count=20, seed="s")


def test_a_finding_survives_its_file() -> None:
    one = finding(outcome="failed", reason="wrong", faults=("wrong",))
    assert one == Finding.from_json(one.to_json())


def test_failures_are_listed_and_refusals_counted_by_reason() -> None:
    found = summary(
        [
            finding(),
            finding(stage="verify", outcome="failed", reason="12 of 64 elements off", builds=0),
            finding(workload="v", structure="", stage="supports", outcome="refused", reason="a sort", builds=0),
        ]
    )
    assert {"norm: a sort": 1} == found["refused"]
    assert ["12 of 64 elements off"] == [f["reason"] for f in found["failed"]]
    assert (2, 3, 1) == (found["workloads"], found["builds"], found["ok"])
    text = table(found, ["supports", "sm_90", "verify"])
    assert "FAILED w default verify: 12 of 64 elements off" in text
    assert "0 / 0 / 1" in text

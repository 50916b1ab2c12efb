"""What a changed environment means for a record (the table of the design notes)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelopt_cache import reuse

ENVIRONMENT = {
    "torch": "2.13.0+cpu",
    "compiler": "g++ 12.2.0",
    "device": "Xeon 8480",
    "cores": "2",
    "driver": "550.54",
    "isa": "avx512",
    "harness": "3",
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "use"),
        ({"torch": "2.13.1+cpu"}, "use"),
        ({"torch": "2.13.0+cu126"}, "use"),
        ({"driver": "560.1"}, "use"),
        ({"hostname": "pod-7f3a"}, "use"),
        ({"torch": "2.14.0"}, "reverify"),
        ({"compiler": "g++ 13.1.0"}, "reverify"),
        ({"harness": "4"}, "reverify"),
        ({"compiler": "unknown"}, "reverify"),
        ({"torch": ""}, "reverify"),
        ({"isa": "unknown"}, "reverify"),
        ({"device": "Xeon 8380"}, "retime"),
        ({"cores": "64"}, "retime"),
        ({"device": "unknown"}, "retime"),
        ({"never heard of": "7"}, "retime"),
        ({"isa": "avx2"}, "never"),
        ({"device": "Xeon 8380", "compiler": "g++ 13.1.0"}, "reverify"),
        ({"device": "Xeon 8380", "compiler": "g++ 13.1.0", "isa": "avx2"}, "never"),
    ],
)
def test_each_change_has_its_consequence(change: dict[str, str], expected: str) -> None:
    """The strictest difference decides, in whichever direction the change went."""
    assert expected == reuse(ENVIRONMENT, {**ENVIRONMENT, **change})
    assert expected == reuse({**ENVIRONMENT, **change}, ENVIRONMENT)


def test_a_field_that_neither_side_knows_is_no_difference() -> None:
    """ "unknown" does not poison a record for ever."""
    assert "use" == reuse({"compiler": "unknown", "device": ""}, {"device": "unknown"})


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8)), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_any_two_environments_have_an_answer(one: dict[str, str], other: dict[str, str]) -> None:
    """Whatever another version recorded, the policy answers, and an environment always suits itself."""
    assert reuse(one, other) in ("use", "retime", "reverify", "never")
    assert "use" == reuse(one, one)

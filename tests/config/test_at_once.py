"""Settings that cannot work together are refused before anything is compiled; and what the package shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import accelopt_compile
from accelopt_compile.authors import check_authors
from accelopt_compile.config import settings_from
from accelopt_compile.errors import InvalidOption

torch = pytest.importorskip("torch")


def relu() -> object:
    return torch.nn.ReLU().eval()


def test_a_language_model_without_a_name_is_refused_at_once() -> None:
    """By prewarm and by a compile, which then compiles nothing; not where nothing is searched."""
    before = accelopt_compile.explain(structured=True)
    with pytest.raises(InvalidOption, match="proposer='llm' needs a model"):
        accelopt_compile.prewarm(relu(), torch.ones(8), proposer="llm")
    assert before == accelopt_compile.explain(structured=True)
    with pytest.raises(Exception, match="proposer='llm' needs a model"):
        torch.compile(relu(), backend="accelopt", options={"proposer": "llm"})(torch.ones(8))
    assert before == accelopt_compile.explain(structured=True)


def test_a_limit_in_dollars_without_a_price_is_refused_at_once() -> None:
    """No search could begin."""
    with pytest.raises(InvalidOption, match="budget_usd=1 needs the price of nobody-knows"):
        check_authors(settings_from({"model": "nobody-knows", "budget_usd": 1.0}))


def test_a_mode_of_torch_compile_is_ours_where_it_has_our_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile(..., mode="apply")` is the option; "default" is Inductor's, and leaves ours as it was."""
    monkeypatch.setenv("ACCELOPT_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("ACCELOPT_BUDGET_S", "0")
    for mode, expected in (("apply", "apply"), ("default", "tune")):
        torch.compiler.reset()
        torch.compile(relu(), backend="accelopt", mode=mode)(torch.ones(8))
        assert expected == accelopt_compile.explain(structured=True)[-1]["mode"]


def test_the_package_shows_what_is_for_users() -> None:
    """Neither modules nor names that it imports itself."""
    assert sorted(accelopt_compile.__all__) == dir(accelopt_compile)
    assert all(hasattr(accelopt_compile, name) for name in dir(accelopt_compile))

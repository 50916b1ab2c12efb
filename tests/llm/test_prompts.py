"""Prompts as files."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.llm.client import ROLES
from accelopt_compile.llm.prompts import front_matter, parse, prompt

TEXT = "---\nversion: 3\n---\n<!-- system -->\nYou are {{ who }}.\n<!-- user -->\nDo {{ what }}.\n"


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_a_prompt_with_a_version(role: str) -> None:
    """The packaged files parse, and each asks for its form of answer."""
    found = prompt(role)
    assert found.version.isdigit()
    assert re.fullmatch(r"[0-9a-f]{64}", found.digest)
    assert "Answer" in found.user


def test_no_prompt_names_a_language() -> None:
    """Languages are data: what knows one comes from its backend's guide."""
    texts = [resources.files("accelopt_compile.llm").joinpath("prompts", f"{role}.md").read_text() for role in ROLES]
    assert [] == re.findall(r"C\+\+|[Tt]riton|NKI|OpenMP|AVX|CUDA", " ".join(texts))


def test_a_prompt_is_filled_in() -> None:
    """Both messages get the variables."""
    assert ("You are A.", "Do B.") == parse("x", TEXT).render(who="A", what="B")


def test_what_is_filled_in_is_never_a_template() -> None:
    """Braces in a kernel stay what they are."""
    assert ("You are {{ what }}{% if %}.", "Do B.") == parse("x", TEXT).render(who="{{ what }}{% if %}", what="B")


@pytest.mark.parametrize(
    ("given", "reason"), [({"who": "A"}, "missing.*what"), ({"who": "A", "what": "B", "why": "C"}, "unused.*why")]
)
def test_a_missing_or_unused_variable_is_an_error(given: dict[str, str], reason: str) -> None:
    """Neither half a prompt nor a forgotten variable goes unnoticed."""
    with pytest.raises(InvalidRecord, match=reason):
        parse("x", TEXT).render(**given)


@pytest.mark.parametrize(
    "text",
    ["", "no front matter", "---\nname: x\n---\n", TEXT.replace("<!-- user -->\n", ""), "---\nversion: 1\n---\njunk\n" + TEXT],
)
def test_a_file_that_is_no_prompt_is_an_error(text: str) -> None:
    """Version, system and user part are all there, or it is refused."""
    with pytest.raises(InvalidRecord):
        parse("x", text)


def test_front_matter_is_taken_off() -> None:
    """The version, and the text behind it."""
    assert ("7", "body\n") == front_matter("x", "---\nversion: 7\n---\nbody\n")

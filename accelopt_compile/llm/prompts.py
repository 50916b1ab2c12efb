"""Prompts as data: one Markdown file a role, with a version in its front matter, filled in by Jinja.

Strict both ways: a variable that the file names and nobody gives, or that is given and the file does not name, is an error.
What is filled in (kernels, plans, lessons) is never read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from accelopt_compile.errors import InvalidRecord
from accelopt_compile.records import sha256_text

_FRONT = re.compile(r"\A---\n((?:[a-z]+: [^\n]*\n)+)---\n")
_SYSTEM, _USER = "<!-- system -->\n", "<!-- user -->\n"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A role's two messages as templates. `version` is raised by whoever changes the wording; `digest` is the file's sha256."""

    role: str
    version: str
    digest: str
    system: str
    user: str

    def render(self, **values: Any) -> tuple[str, str]:
        """(system, user). Raises InvalidRecord for a missing or an unused variable."""
        used = _variables(self.system) | _variables(self.user)
        if used != values.keys():
            wrong = {"missing": sorted(used - values.keys()), "unused": sorted(values.keys() - used)}
            raise InvalidRecord(f"prompt {self.role} version {self.version}: {wrong}")
        return _filled(self.system, values), _filled(self.user, values)


@lru_cache(maxsize=8)
def prompt(role: str) -> Prompt:
    """The prompt of a role, from the package's files."""
    return parse(role, resources.files("accelopt_compile.llm").joinpath("prompts", f"{role}.md").read_text(encoding="utf-8"))


def parse(role: str, text: str) -> Prompt:
    """A prompt file's text, checked. Raises InvalidRecord."""
    version, body = front_matter(role, text)
    before, system, rest = body.partition(_SYSTEM)
    system, user_mark, user = rest.partition(_USER)
    if before.strip() or not system or not user_mark or not user.strip():
        raise InvalidRecord(f"prompt {role}: it is not {_SYSTEM.strip()!r} with a text, then {_USER.strip()!r} with one")
    return Prompt(role=role, version=version, digest=sha256_text(text), system=system.strip(), user=user.strip())


def front_matter(name: str, text: str) -> tuple[str, str]:
    """(version, the text after the front matter). Raises InvalidRecord where there is none."""
    head = _FRONT.match(text)
    fields = dict(line.split(": ", 1) for line in head[1].splitlines()) if head else {}
    if head is None or "version" not in fields:
        raise InvalidRecord(f"{name}: it does not begin with front matter that has a version")
    return fields["version"], text[head.end() :]


def _environment() -> Any:
    import jinja2

    return jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)


@lru_cache(maxsize=16)
def _variables(template: str) -> frozenset[str]:
    from jinja2 import meta

    return frozenset(meta.find_undeclared_variables(_environment().parse(template)))


def _filled(template: str, values: Mapping[str, Any]) -> str:
    return str(_environment().from_string(template).render(values))

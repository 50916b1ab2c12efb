"""The part of a backend that writes kernels from workloads: a generic generator, and families of operators with their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar

from accelopt_backends.loops.affine import Unsupported
from accelopt_compile.records import KernelSource, Workload


class Generated:
    """`supports`, `seed`, `grammar` and `render` of `base.Backend`. `package` holds the module `kernel`, the generic generator
    (grammar, render), and one of matches, grammar and render for each family; `families` names what marks one in a
    workload. The modules are imported where a kernel is written: a process that finds all of its winners in the store starts
    without them."""

    package: ClassVar[str]
    families: ClassVar[Mapping[str, tuple[str, ...]]]

    def supports(self, workload: Workload) -> str | None:
        family = self._family(workload)
        if family is not None:
            matched = family.matches(workload)
            return None if matched is True else str(matched)
        try:
            _rendered(self.package, workload.to_text(), ())
        except Unsupported as reason:
            return str(reason)
        return None

    def seed(self, workload: Workload) -> KernelSource:
        return self.render(workload, {})

    def grammar(self, workload: Workload) -> Mapping[str, tuple[str, ...]]:
        offered: Mapping[str, tuple[str, ...]] = (self._family(workload) or self.module("kernel")).grammar(workload)
        return offered

    def render(self, workload: Workload, structure: Mapping[str, str]) -> KernelSource:
        grammar = self.grammar(workload)
        for name, value in structure.items():
            if value not in grammar.get(name, ()):
                raise ValueError(f"structure {name}={value!r}; this workload takes {dict(grammar)}")
        family = self._family(workload)
        if family is not None:
            source: KernelSource = family.render(workload, structure)
            return source
        try:
            return _rendered(self.package, workload.to_text(), tuple(sorted(structure.items())))
        except Unsupported as reason:
            raise ValueError(f"no kernel with {dict(structure)}: {reason}") from reason

    def module(self, name: str) -> Any:
        """A module of the backend."""
        return import_module(f"{self.package}.{name}")

    def _family(self, workload: Workload) -> Any:
        names = (n for n, marks in self.families.items() if any(mark in node.op for node in workload.nodes for mark in marks))
        found = next(names, None)
        return None if found is None else self.module(found)


@lru_cache(maxsize=256)
def _rendered(package: str, workload_text: str, structure: tuple[tuple[str, str], ...]) -> KernelSource:
    kernel: Any = import_module(f"{package}.kernel")
    source: KernelSource = kernel.render(Workload.from_json(json.loads(workload_text)), dict(structure))
    return source

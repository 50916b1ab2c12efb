"""Which backends there are, and how one is named where a name must do: in settings, and in what a child process is told.

A backend that can prepare kernels for a device that is not here takes the device's target: `Backend(target="")`, "" for
whatever is here. An address, "module:Class" or "module:Class@target", makes the same one anywhere.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from accelopt_backends.base import Backend, Ready

_CLASS = re.compile(r"^class (\w+Backend)\b", re.MULTILINE)
_DEVICE = re.compile(r'^    device = "(\w+)"$', re.MULTILINE)
_TARGETS = re.compile(r'^    target_names = r"(.+)"$', re.MULTILINE)
_AUTOMATIC = re.compile(r"^    automatic = True$", re.MULTILINE)


@functools.cache
def classes() -> dict[str, str]:
    """Name to "module:Class" of each backend: a folder of this package whose `__init__` defines a class named ...Backend.
    Read as text, since importing one may load a toolchain."""
    found = {}
    for name, text in _texts().items():
        if (defined := _CLASS.search(text)) is not None:
            found[name] = f"accelopt_backends.{name}:{defined[1]}"
    return found


def automatic(device: str) -> tuple[str, ...]:
    """The names of the backends that the setting "auto" tries for a graph whose tensors are on `device` ("cpu", "cuda"). No
    other backend is imported for it, so that a graph on one device never meets another's toolchain."""
    texts = {name: _texts()[name] for name in classes()}
    meant = [name for name, text in texts.items() if (said := _DEVICE.search(text)) is not None and said[1] == device]
    return tuple(name for name in meant if _AUTOMATIC.search(texts[name]))


def is_target(name: str) -> bool:
    """Whether a backend has such a target, be its device here or not: its class says how they are named."""
    said = (_TARGETS.search(_texts()[backend]) for backend in classes())
    return any(pattern is not None and re.fullmatch(pattern[1], name) for pattern in said)


@functools.cache
def _texts() -> dict[str, str]:
    return {p.parent.name: p.read_text(encoding="utf-8") for p in sorted(Path(__file__).parent.glob("*/__init__.py"))}


def backend_named(name: str, target: str = "") -> Backend:
    """The backend of this language, for the device that is here or, where the language can prepare for another one, for
    `target`: its `probe` says which. Raises KeyError for a name that is none."""
    return backend_at(classes()[name] + (f"@{target}" if target else ""))


def backend_at(address: str) -> Backend:
    """The backend of an address."""
    place, _, target = address.partition("@")
    module, _, attribute = place.partition(":")
    made = getattr(importlib.import_module(module), attribute)
    backend: Backend = made(target) if target and _takes_target(made) else made()
    return backend


def address_of(backend: Backend) -> str:
    """The address by which a child process makes the same backend."""
    place = f"{type(backend).__module__}:{type(backend).__qualname__}"
    ready = backend.probe() if _takes_target(type(backend)) else None
    return f"{place}@{ready.target}" if isinstance(ready, Ready) else place


def _takes_target(made: Any) -> bool:
    return "target" in inspect.signature(made).parameters

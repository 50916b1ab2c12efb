"""What each backend says of this machine."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

import accelopt_backends
from accelopt_backends.base import Backend, Missing, Ready


def backends() -> Mapping[str, Backend]:
    """Every backend by name: one folder of accelopt_backends holds one, in a class named ...Backend."""
    found: dict[str, Backend] = {}
    for folder in pkgutil.iter_modules(accelopt_backends.__path__):
        if not folder.ispkg:
            continue
        module = importlib.import_module(f"accelopt_backends.{folder.name}")
        for name, value in vars(module).items():
            if isinstance(value, type) and name.endswith("Backend") and value.__module__.startswith(module.__name__):
                backend: Backend = value()
                found[backend.name] = backend
    return found


def probes() -> Mapping[str, Ready | Missing]:
    """Backend name to its answer."""
    return {name: backend.probe() for name, backend in backends().items()}

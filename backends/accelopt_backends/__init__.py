"""Backends by name: one folder a language, each implementing `base.Backend`."""

from __future__ import annotations

from accelopt_backends.base import Backend

NAMES = ("cpp", "reference")


def get_backend(name: str) -> Backend:
    """The backend called `name`. Its toolchain is not touched before it is used. Raises ValueError."""
    if name == "cpp":
        from accelopt_backends.cpp import CppBackend

        return CppBackend()
    if name == "reference":
        from accelopt_backends.reference import ReferenceBackend

        return ReferenceBackend()
    raise ValueError(f"no backend {name!r}; there are {', '.join(NAMES)}")

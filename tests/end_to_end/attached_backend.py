"""The C++ backend as if its kernels ran on a device with memory of its own: the evaluator's stand-in on the host."""

from __future__ import annotations

from dataclasses import replace

from accelopt_backends.base import Attached, Missing, Ready
from accelopt_backends.cpp import CppBackend


class AttachedCpp(CppBackend):
    def probe(self) -> Ready | Missing:
        ready = super().probe()
        return ready if isinstance(ready, Missing) else replace(ready, attached=Attached(driver="copies"))

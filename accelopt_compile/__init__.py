"""AccelOpt Compile: `torch.compile(model, backend="accelopt")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["AccelOptError", "Settings", "__version__", "accelopt", "explain", "prewarm", "stats"]

if TYPE_CHECKING:
    from accelopt_compile.api import explain, prewarm, stats
    from accelopt_compile.config import Settings
    from accelopt_compile.errors import AccelOptError
    from accelopt_compile.torch_backend import accelopt

_HOMES = {
    "AccelOptError": "errors",
    "Settings": "config",
    "accelopt": "torch_backend",
    "explain": "api",
    "prewarm": "api",
    "stats": "api",
}


def __dir__() -> list[str]:
    """What is for users: not the modules that happen to be imported."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Names are imported when they are used, so that importing the package does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

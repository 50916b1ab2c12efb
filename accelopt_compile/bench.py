"""Where searches run, and what searches left is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from accelopt_backends.base import Backend
from accelopt_cache.kernel_store import Store
from accelopt_compile.config import Settings
from accelopt_compile.events import Event
from accelopt_compile.llm.client import Client


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where searches run: the backend, its target and environment, our store and the layers below it that others can write
    (`accelopt_cache.layers`), threads, and the settings. `rung` is what running a kernel here proves (`Ready.rung`), `attached`
    whether kernels run on a device with memory of its own. `keep` makes every search a run that stays; `client` stands in for
    the language model's server; `watch` is told of each event as it happens."""

    settings: Settings
    store: Store
    backend: Backend
    target: str
    environment: Mapping[str, str]
    threads: int
    rung: Literal["device", "simulated"] = "device"
    attached: bool = False
    layers: tuple[Store, ...] = ()
    keep: bool = False
    client: Client | None = None
    watch: Callable[[Event], None] | None = None

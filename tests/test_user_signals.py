"""A user's signal handlers while we compile: what they raise arrives, whatever we catch, and they stay installed."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from accelopt_compile import user_signals
from accelopt_compile.graph_pass import AccelOptPass, choice
from accelopt_compile.partition import partition
from accelopt_compile.signature import sign
from tests.regions.models import graph_of


def late(*_: Any) -> None:
    raise TimeoutError("late")


@pytest.fixture
def installed() -> Iterator[Any]:
    before = signal.signal(signal.SIGUSR1, late)
    yield late
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("swallowed", [OSError, Exception])
def test_what_we_catch_does_not_stop_it(installed: Any, swallowed: type[Exception]) -> None:
    """Raised inside a handling of our own failures, the user's exception arrives as itself."""
    with pytest.raises(TimeoutError, match="late"), user_signals.heard(), contextlib.suppress(swallowed):
        signal.raise_signal(signal.SIGUSR1)
    assert installed is signal.getsignal(signal.SIGUSR1)


def test_a_deadline_that_comes_while_kernels_are_put_into_a_backward(installed: Any) -> None:
    """That is compiled when it is first asked for, outside of what the forward's compile guards."""

    class Ringing:
        @property
        def key(self) -> str:
            signal.raise_signal(signal.SIGUSR1)
            return "key"

    graph = graph_of(lambda x: F.rms_norm(x, (64,)), torch.randn(100, 64))
    (region,) = partition(graph).regions
    signed = sign(region)
    ours = AccelOptPass({choice(signed.workload.digest, signed.binding): Ringing()})  # type: ignore[dict-item]
    with pytest.raises(TimeoutError, match="late"):
        ours(graph)
    assert installed is signal.getsignal(signal.SIGUSR1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads libc's struct sigaction")
@pytest.mark.parametrize("restarts", [False, True])
def test_whether_system_calls_go_on_stays_as_it_was(installed: Any, restarts: bool) -> None:
    """asyncio has it on for its handlers, and to install a handler turns it off."""
    signal.siginterrupt(signal.SIGUSR1, not restarts)
    with user_signals.heard():
        assert installed is not signal.getsignal(signal.SIGUSR1)
    assert restarts == user_signals._restarts(signal.SIGUSR1)


def test_a_compile_inside_a_compile(installed: Any) -> None:
    """Only the outermost gives the exception back, and both leave the handler as it was."""
    with pytest.raises(TimeoutError, match="late"), user_signals.heard(), contextlib.suppress(OSError):
        with user_signals.heard(), contextlib.suppress(OSError):
            signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("swallowed")
    assert installed is signal.getsignal(signal.SIGUSR1)


def test_a_handler_that_raises_nothing_is_called(installed: Any) -> None:
    """And one that was installed inside stays installed."""
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    with user_signals.heard():
        signal.raise_signal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, late)
    assert [signal.SIGUSR1] == heard
    assert late is signal.getsignal(signal.SIGUSR1)


def test_other_threads_change_nothing(installed: Any) -> None:
    """Handlers belong to the main thread: a compile in another leaves them alone."""
    seen: list[Any] = []

    def compiling() -> None:
        with user_signals.heard():
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=compiling)
    thread.start()
    thread.join()
    assert [installed] == seen

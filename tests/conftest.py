"""What holds for every test."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
"""Spares each process its probing of the vector instructions, which takes seconds wherever Inductor's cache is new. It is in
Inductor's keys, so it is the same for all tests."""

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Threads that wait for one another do so asleep: where several workers share two cores, those that spin take the time that the
others need (16 tests that search with two threads took 328 s on two cores, and 195 s so). No test asserts a speed."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts `command &` with SIGINT ignored, and every child would inherit that: the commands that
    # tests interrupt would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="run whole sweeps and the longest tests: half an hour on two cores, not a quarter"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --thorough, one case of n where a test is marked sweep(n), and nothing that is marked thorough."""
    if config.getoption("--thorough"):
        return
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(pytest.mark.skip(reason="takes long: only with --thorough"))
        if sweep := item.get_closest_marker("sweep"):
            name, (every,) = item.nodeid.partition("[")[0], sweep.args
            if seen[name] % every:
                item.add_marker(pytest.mark.skip(reason=f"one case of {every} runs: all with --thorough"))
            seen[name] += 1

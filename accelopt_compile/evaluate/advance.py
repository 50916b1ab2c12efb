"""Compiling the baselines of several workloads before their searches begin."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from accelopt_backends.base import Backend, Ready
from accelopt_compile import temporary
from accelopt_compile.errors import EvaluatorDied
from accelopt_compile.evaluate.limits import Limits
from accelopt_compile.evaluate.sandbox.host import Birth, Child, ChildFailed
from accelopt_compile.evaluate.sandbox.surroundings import baselines_folder
from accelopt_compile.records import Workload
from accelopt_compile.wording import region, said_once

log = logging.getLogger(__name__)

COMPILERS = 2


def prepare_baselines(
    tasks: Sequence[tuple[Workload, Mapping[str, int]]],
    *,
    backend: Backend,
    threads: int,
    seconds: float,
    limit_s: float,
    cache_dir: str | None = None,
) -> int:
    """Compile the Inductor baselines of several workloads, two at a time, into the cache that evaluators read, so that
    later searches do not wait for a compiler each. Stops starting new ones after `seconds`, and waits for those that it
    started up to `limit_s`: half a compilation is of no use, and where there is no time for a whole one now, the next compile
    finds it done. How many were compiled. A workload that fails here fails again, and says so, in its own evaluator."""
    started = time.monotonic()
    ready = backend.probe()
    attached = ready.attached if isinstance(ready, Ready) else None
    about = {"threads": threads, "driver": "" if attached is None else attached.driver}
    folder = baselines_folder(cache_dir)
    queue, lock, stop = iter(tasks), threading.Lock(), threading.Event()
    children: dict[int, Child] = {}

    def work(number: int) -> int:
        done = 0
        with temporary.Folder("scratch") as scratch:
            birth = Birth(role="nursery", scratch=scratch, limits=Limits(), inductor_cache=folder, attached=attached)
            while time.monotonic() - started < seconds and not stop.is_set():
                with lock:
                    task = next(queue, None)
                if task is None:
                    break
                # One child for many: it preprocesses Inductor's header once, a second each otherwise.
                if number not in children or not children[number].alive:
                    try:
                        children[number] = Child(birth)
                    except EvaluatorDied as failure:
                        log.info("no region is compiled in advance: %s", said_once(str(failure)))
                        break
                done += _compile(children[number], *task, about, seconds=started + limit_s - time.monotonic())
            if number in children:
                children[number].close()
        return done

    with ThreadPoolExecutor(max_workers=COMPILERS) as pool:
        try:
            return sum(pool.map(work, range(COMPILERS)))
        except BaseException:  # Ctrl-C: whoever waits for an answer hears that there is none
            stop.set()
            for child in list(children.values()):
                child.kill()
            raise


def _compile(child: Child, workload: Workload, binding: Mapping[str, int], about: Mapping[str, Any], *, seconds: float) -> int:
    message = {"op": "baseline", "workload": workload.to_json(), "binding": dict(binding), **about}
    try:
        return int(bool(child.request(message, max(5.0, seconds)).get("inductor")))
    except (ChildFailed, EvaluatorDied) as failure:
        told = "the baseline of region %s is compiled when its search begins, not in advance: %s"
        log.info(told, region(workload), said_once(str(failure)))
        child.close()
        return 0

"""Child process of the store's tests: `python writer.py ROOT COMMAND [ARGUMENT...]`. Prints one line when it is ready."""

from __future__ import annotations

import os
import sys
import time

from accelopt_cache import Store
from tests.cache.samples import TARGET, winner, workload


def main(root: str, command: str, *arguments: str) -> None:
    if command == "as-uid":
        uid, command, *rest = arguments
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
        arguments = tuple(rest)
    store = Store.open(root or None)
    if command == "put":
        name, count = arguments
        for number in range(int(count)):
            store.put(winner(text=f"// {name} {number}", us=10.0 + number), workload())
    elif command == "put-forever":
        print("ready", flush=True)
        number = 0
        while True:
            number += 1
            store.put(winner(text=f"// {os.getpid()} {number} " + "x" * 200_000), workload())
            store.save_progress(workload().digest, TARGET, {"number": number, "text": "y" * 100_000})
    elif command == "hold":
        with store.claim("w", TARGET) as mine:
            print(mine, flush=True)
            time.sleep(60)
    elif command == "hold-run":
        with store.runs.open(arguments[0]).lock as mine:
            print(mine, flush=True)
            time.sleep(60)
    elif command == "save-forever":
        run = store.runs.open(arguments[0])
        print("ready", flush=True)
        for number in range(1_000_000):
            run.save_state({"number": number, "text": str(number % 10) * 300_000})
    elif command == "read":
        found = store.best(workload().digest, TARGET, {"s0": 64})
        store.put(winner(text="// added"), workload())
        print(found is not None, len(store.winners(workload().digest, TARGET)), store.writable, flush=True)
    elif command == "modules":
        print("torch" in sys.modules, flush=True)
    elif command == "fill":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(arguments[0]), int(arguments[0])))
        store.put(winner(text="// " + "x" * 10_000), workload())
        print(len(store.winners(workload().digest, TARGET)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

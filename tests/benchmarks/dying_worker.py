"""A worker for tests: answers, dies of {"op": "die"} as a process dies of a device fault, and never answers {"op": "hang"}."""

from __future__ import annotations

import json
import os
import sys
import time

print(json.dumps({"device": "none"}), flush=True)
for line in sys.stdin:
    match json.loads(line)["op"]:
        case "die":
            print("an illegal memory access was encountered", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            time.sleep(600)
        case "fault":
            print(json.dumps({"ok": False, "detail": "a device fault", "fault": True}), flush=True)
        case _:
            print(json.dumps({"ok": True, "detail": "", "pid": os.getpid()}), flush=True)

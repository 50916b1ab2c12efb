"""A stand-in for `benchmarks.region_child` whose case "deadly" ends its process, and which prints other things too."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    for key in json.loads(sys.argv[1])["keys"]:
        if key == "deadly":
            os.abort()
        print("something a library prints")
        print(json.dumps({"case": key, "ratio": 1.5}), flush=True)

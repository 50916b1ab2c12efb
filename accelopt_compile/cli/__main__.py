"""`python -m accelopt_compile.cli`, for where the console script is not on the path."""

from __future__ import annotations

import sys

from accelopt_compile.cli import run

if __name__ == "__main__":
    code = run(sys.argv[1:])
    # CPython kills a process that runs a module by SIGINT, whatever its exit code, when a KeyboardInterrupt went through an
    # `exec` of a string, as torch's wrappers are, and was caught later; the next `exec` makes it forget.
    exec("")
    sys.exit(code)

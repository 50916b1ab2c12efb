"""`python -m accelopt_compile.cli`, for where the console script is not on the path."""

from __future__ import annotations

from accelopt_compile.cli import main

main()

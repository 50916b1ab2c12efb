"""What holds for every test."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
"""Spares each process its probing of the vector instructions, which takes seconds wherever Inductor's cache is new. It is in
Inductor's keys, so it is the same for all tests."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts `command &` with SIGINT ignored, and every child would inherit that: the commands that
    # tests interrupt would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

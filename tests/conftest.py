"""What holds for every test."""

from __future__ import annotations

import os
import signal

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

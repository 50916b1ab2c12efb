"""What holds for every test."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts `command &` with SIGINT ignored, and every child would inherit that: the commands that
    # tests interrupt would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

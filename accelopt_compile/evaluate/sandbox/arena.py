"""Memory that the referee and a candidate's process share: what a kernel reads and writes, and nothing else."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os


class Arena:
    """Memory of a fixed size, handed to children by descriptor. Sealed, so that no child can shrink it under the others
    (they would die of SIGBUS) or grow it. Raises OSError where the system has no such memory."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("accelopt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    def close(self) -> None:
        """Safe to call twice. Children that mapped it keep it until they end."""
        descriptor, self.descriptor = self.descriptor, -1
        with contextlib.suppress(OSError):
            os.close(descriptor)

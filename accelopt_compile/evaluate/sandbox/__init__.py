"""The child process that runs untrusted kernels, and the host that starts, limits and ends it."""

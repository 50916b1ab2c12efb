"""The Triton backend: kernels for GPUs, generated from the region, compiled for named targets, proven without one."""

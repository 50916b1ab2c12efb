"""Measurements. Each `bench_*` module is run as `python -m benchmarks.bench_NAME [--quick]`."""

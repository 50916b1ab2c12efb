"""Kernels and problems in the formats of others: FlashInfer-Bench's definitions in, solutions and traces out."""

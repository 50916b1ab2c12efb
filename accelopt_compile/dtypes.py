"""torch's dtypes by our short names, and the names by the dtypes. Imports torch."""

from __future__ import annotations

import torch

DTYPES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "b8": torch.bool,
}
SHORT_DTYPE = {dtype: name for name, dtype in DTYPES.items()}
"""Our short names of the dtypes that a workload may use."""

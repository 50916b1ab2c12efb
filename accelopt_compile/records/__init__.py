"""The records that cross seams. Frozen, keyword-only, and each convertible to and from plain JSON.

They are imported from here; the files are the groups that they come in. They import nothing of ours but `errors`. A number
carries its unit in its name. Everything read back from JSON is checked where it is read (`InvalidRecord`), because the cache, the
network and a model are untrusted.
"""

from __future__ import annotations

from accelopt_compile.records.arguments import Arg, DtypeArg, Ref, SymbolArg, ref_from, refs_of
from accelopt_compile.records.canonical import canonical_json, sha256_text
from accelopt_compile.records.kernels import (
    RUNGS,
    Accepted,
    Artifact,
    Basis,
    ErrorReport,
    KernelSource,
    Rejected,
    Rung,
    Stage,
    Timing,
    Verdict,
    source_from_json,
    timing_from_json,
)
from accelopt_compile.records.search import Candidate, Experience, Plan
from accelopt_compile.records.stored import OUTCOMES, Outcome, Record
from accelopt_compile.records.tensors import (
    DTYPES,
    ITEM_BYTES,
    Binding,
    Dim,
    TensorSpec,
    bucket_distance,
    bytes_of,
    evaluate_dim,
)
from accelopt_compile.records.workload import KEY_VERSION, Node, Workload

__all__ = [
    "DTYPES",
    "ITEM_BYTES",
    "KEY_VERSION",
    "OUTCOMES",
    "RUNGS",
    "Accepted",
    "Arg",
    "Artifact",
    "Basis",
    "Binding",
    "Candidate",
    "Dim",
    "DtypeArg",
    "ErrorReport",
    "Experience",
    "KernelSource",
    "Node",
    "Outcome",
    "Plan",
    "Record",
    "Ref",
    "Rejected",
    "Rung",
    "Stage",
    "SymbolArg",
    "TensorSpec",
    "Timing",
    "Verdict",
    "Workload",
    "bucket_distance",
    "bytes_of",
    "canonical_json",
    "evaluate_dim",
    "ref_from",
    "refs_of",
    "sha256_text",
    "source_from_json",
    "timing_from_json",
]

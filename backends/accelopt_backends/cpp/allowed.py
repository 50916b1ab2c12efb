"""What a kernel may ask of other libraries: read by the screen of the text and by the screen of the object."""

from __future__ import annotations

import re

ENTRY = "accelopt_kernel"

MACRO = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
"""A tunable's name: it becomes a macro on the compiler's command line."""

_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax "
    "fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter pow "
    "remainder remquo rint round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc"
)
MATH = frozenset(name + kind for name in _MATH.split() for kind in ("", "f"))
MEMORY = frozenset({"memcpy", "memmove", "memset", "memcmp", "malloc", "aligned_alloc", "free"})
TEAM = frozenset({"omp_get_thread_num", "omp_get_num_threads"})

FUNCTIONS = MATH | MEMORY | TEAM
"""Mathematics, memory for one call, and a thread's place in its team. No clocks, no files, no settings of the runtime."""

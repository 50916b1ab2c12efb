"""The kernel cache: verified kernels, experiences and graphs on disk, shared by any number of processes."""

from accelopt_cache.kernel_store import Store
from accelopt_cache.prune import Report, collect
from accelopt_cache.record_codec import record_id
from accelopt_cache.reuse import Reuse, reuse

__all__ = ["Report", "Reuse", "Store", "collect", "record_id", "reuse"]

"""The store: one object that answers for everything under a cache root."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from accelopt_cache import layout, prune
from accelopt_cache.builds import Builds
from accelopt_cache.claims import Claims, Holder
from accelopt_cache.experience_store import ExperienceStore, StoredExperience
from accelopt_cache.files import Files
from accelopt_cache.graph_store import GraphStore, ProgressStore
from accelopt_cache.record_store import RecordStore
from accelopt_cache.run_store import RunStore
from accelopt_compile.records import Experience


class Store(RecordStore):
    """Kernels, graphs, experiences, progress, runs and builds under one root; records as in `RecordStore`, runs in `runs`.

    Opening never fails: an unusable root costs one warning, and this process then keeps what it finds in memory. All
    methods may be called from any thread and any number of processes.
    """

    def __init__(self, root: layout.Root) -> None:
        super().__init__(Files(root))
        self._claims = Claims(self.files)
        self._graphs = GraphStore(self.files)
        self._progress = ProgressStore(self.files)
        self._experiences = ExperienceStore(self.files)
        self._builds = Builds(self.files)
        self.runs = RunStore(self.files)

    @staticmethod
    def open(root: str | Path | None = None, *, readonly: bool = False) -> Store:
        """The store at `root` (default: $ACCELOPT_CACHE_DIR, else the user's cache directory)."""
        return Store(layout.examine(root, readonly=readonly))

    @property
    def root(self) -> Path | None:
        """The root directory, or None where it is not used."""
        return self.files.root.path

    @property
    def writable(self) -> bool:
        """Whether what is put here outlives the process (as far as is known before a write)."""
        return self.files.writable

    @property
    def why(self) -> str:
        """What is wrong with the root; empty when nothing is."""
        return self.files.root.why

    # ------------------------------------------------------------ searches

    def claim(self, workload_digest: str, target: str, *, timeout_s: float = 0.0) -> AbstractContextManager[bool]:
        """`with store.claim(w, t) as mine:`; `mine` is False when another process (or thread) searches already."""
        return self._claims.claim(workload_digest, target, timeout_s=timeout_s)

    def wait(self, workload_digest: str, target: str, timeout_s: float) -> bool:
        """Wait for the holder of a claim; False when it still holds after `timeout_s` seconds."""
        return self._claims.wait(workload_digest, target, timeout_s)

    def holder(self, workload_digest: str, target: str) -> Holder | None:
        """Who holds a claim, or None."""
        return self._claims.holder(workload_digest, target)

    def save_progress(self, workload_digest: str, target: str, data: dict[str, Any]) -> None:
        """Keep where a search stands, so that the next run goes on. Plain JSON, else InvalidRecord."""
        self._progress.save(workload_digest, target, data)

    def load_progress(self, workload_digest: str, target: str) -> dict[str, Any] | None:
        """Where an interrupted search stands, or None."""
        return self._progress.load(workload_digest, target)

    def search_events(self, workload_digest: str, target: str) -> Path | None:
        """The file for the events of a search, which goes with its progress; None where nothing can be written."""
        return self._progress.events(workload_digest, target)

    def clear_progress(self, workload_digest: str, target: str) -> None:
        """Forget the progress of a search that has ended."""
        self._progress.clear(workload_digest, target)

    # ------------------------------------------------------------ graphs, memory, builds

    def graph(self, digest: str, *, used: bool = False) -> dict[str, Any] | None:
        """What is known of a captured graph, or None. `used` by a compile, so that pruning keeps it."""
        return self._graphs.get(digest, used=used)

    def graphs(self) -> tuple[str, ...]:
        """The digests of all graphs that something is known of."""
        return self._graphs.digests()

    def put_graph(self, digest: str, data: dict[str, Any]) -> bool:
        """Keep what is known of a captured graph; False where only this process has it. Plain JSON, else InvalidRecord."""
        return self._graphs.put(digest, data)

    def experiences(self, backend: str, family: str | None = None, arch: str | None = None) -> tuple[Experience, ...]:
        """Experiences of a backend, newest first; those whose kernel is out of service are left out."""
        return self._experiences.find(backend, family, arch)

    def memory(
        self, backend: str | None = None, family: str | None = None, arch: str | None = None
    ) -> tuple[StoredExperience, ...]:
        """All experiences as they are stored, newest first, withdrawn ones marked."""
        return self._experiences.entries(backend, family, arch)

    def experience_ids(self) -> list[str]:
        """The id of every experience."""
        return list(self._experiences.ids())

    def remove_experience(self, experience_id: str) -> bool:
        """Forget an experience; True when there was one and it is gone."""
        return self._experiences.remove(experience_id)

    def add_experience(self, experience: Experience) -> str:
        """Keep an experience (once); its id."""
        return self._experiences.add(experience)

    def build_dir(self, target: str, key: str) -> Path:
        """An existing, writable directory for building one artifact."""
        return self._builds.directory(target, key)

    def built(self, target: str, key: str) -> Path | None:
        """The built file of an artifact, made on this machine and undamaged, or None."""
        return self._builds.get(target, key)

    def put_built(self, target: str, key: str, so_path: str | Path) -> Path:
        """Keep a built file; the content-named copy to load."""
        return self._builds.put(target, key, Path(so_path))

    # ------------------------------------------------------------ upkeep

    def stats(self) -> dict[str, Any]:
        """Files and bytes by kind, winners by target, and what is wrong with the root."""
        return prune.stats(self)

"""Small documents kept under a given name rather than by their content, each sealed with its digest: what is known of a
captured graph, and where an interrupted search stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelopt_cache import durable, layout
from accelopt_cache.files import Files, warn_once
from accelopt_compile.errors import DamagedEntry, InvalidRecord

GRAPH_VERSION = 1
PROGRESS_VERSION = 1


class GraphStore:
    """One document per captured graph, so that a warm process need not capture twice."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def get(self, digest: str, *, used: bool = False) -> dict[str, Any] | None:
        """The document of a graph, or None; stamped where it is `used`, and not only looked at."""
        try:
            name = layout.graph(digest)
        except InvalidRecord:
            return None
        if used:
            self.files.touch(name)
        return self.files.read(name, lambda data: _document(data, version=GRAPH_VERSION, graph=digest))

    def digests(self) -> tuple[str, ...]:
        """Of all graphs that are stored, sorted."""
        return tuple(sorted(name.removesuffix(".json") for name in self.files.names(layout.GRAPHS)))

    def put(self, digest: str, data: dict[str, Any]) -> bool:
        """Replace the document of a graph; False where only this process has it. Raises InvalidRecord for what is not plain
        JSON."""
        return self.files.write(layout.graph(digest), durable.seal(data, version=GRAPH_VERSION, graph=digest))


class ProgressStore:
    """One document per search that is under way or was interrupted, and beside it a file for its events. The last writer
    wins; the claim keeps others out."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def save(self, workload_digest: str, target: str, data: dict[str, Any]) -> None:
        """Replace what is known of a search. Raises InvalidRecord for what is not plain JSON (an infinity is not)."""
        sealed = durable.seal(data, version=PROGRESS_VERSION, workload=workload_digest, target=target)
        self.files.write(layout.progress(workload_digest, target), sealed)

    def load(self, workload_digest: str, target: str) -> dict[str, Any] | None:
        """Where the search stands, or None."""
        about = {"version": PROGRESS_VERSION, "workload": workload_digest, "target": target}
        try:
            name = layout.progress(workload_digest, target)
        except InvalidRecord:
            return None
        return self.files.read(name, lambda data: _document(data, **about))

    def events(self, workload_digest: str, target: str) -> Path | None:
        """The file that a search appends its events to, in an existing directory; None where nothing can be written."""
        name = layout.events(workload_digest, target)
        path, root = self.files.path(name), self.files.root.path
        if path is None or root is None or not self.files.writable:
            return None
        try:
            self.files.clear_way(name)
            durable.make_dirs(path.parent, below=root)
        except OSError as failure:
            warn_once(str(path.parent), f"cannot be written ({failure.strerror}); an interrupted search starts anew")
            return None
        return path

    def clear(self, workload_digest: str, target: str) -> None:
        """Forget a search that has ended."""
        self.files.remove(layout.progress(workload_digest, target))
        self.files.remove(layout.events(workload_digest, target))


def _document(data: bytes, **about: Any) -> dict[str, Any]:
    value = durable.unseal(data, **about)
    if not isinstance(value, dict):
        raise DamagedEntry("it does not hold an object")
    return value

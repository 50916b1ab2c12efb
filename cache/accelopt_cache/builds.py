"""Built kernels: files that can always be built again. One is used only where it was built, and only while its digest holds.

A built file is named by its content and never rewritten, because another process may have it mapped.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

from accelopt_cache import durable, layout
from accelopt_cache.files import Files
from accelopt_compile.errors import DamagedEntry, InvalidRecord

BUILD_VERSION = 1

BUILD_LIMIT = 256 << 20
"""Bytes of the largest built file that is kept."""

_FILE = re.compile(r"[0-9a-f]{64}\.[A-Za-z0-9]{1,16}")


@functools.cache
def host_fingerprint() -> str:
    """What a binary depends on and cannot say: the processor with its features, the C library, the machine's identity.
    No host name: a container's changes at every start."""
    parts = [platform.machine(), platform.system(), *platform.libc_ver(), _first_line("/etc/machine-id")]
    try:
        seen = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        seen = platform.processor()
    for field in (
        "vendor_id",
        "model name",
        "cpu family",
        "model",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
    ):
        match = re.search(rf"^{field}\s*:(.*)$", seen, re.MULTILINE)
        parts.append(match[1].strip() if match else "")
    return durable.sha256("\n".join(parts).encode())


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class Builds:
    """Built files by (target, artifact key)."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._here: dict[tuple[str, str], Path] = {}

    def directory(self, target: str, key: str) -> Path:
        """A directory to build in: under the root, or of this process where that cannot be written. It exists.
        Raises InvalidRecord for a key that cannot be a file name."""
        name = layout.build_dir(target, key)
        path = self.files.path(name)
        if path is not None and self.files.writable and self.files.root.path is not None:
            try:
                self.files.clear_way(name + "/any")
                durable.make_dirs(path, below=self.files.root.path)
                if os.access(path, os.W_OK):
                    return path
            except OSError:
                pass  # the scratch directory serves
        path = self.files.scratch() / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def put(self, target: str, key: str, built: Path) -> Path:
        """Keep a built file; where it now lies. Raises OSError when `built` cannot be read, InvalidRecord when it is
        too large."""
        data = built.read_bytes()
        if len(data) > BUILD_LIMIT:
            raise InvalidRecord(f"{built} has {len(data)} bytes, more than {BUILD_LIMIT}")
        sha = durable.sha256(data)
        file = f"{sha}{built.suffix if re.fullmatch(r'[.][A-Za-z0-9]{1,16}', built.suffix) else '.so'}"
        name = f"{layout.build_dir(target, key)}/{file}"
        if self.files.write_file(name, data):
            about = {"version": BUILD_VERSION, "target": target, "key": key, "host": host_fingerprint()}
            value = {"file": file, "sha256": sha, "bytes": len(data)}
            if self.files.write(_index(target, key), durable.seal(value, **about)):
                return self._path(name)
        path = self.files.scratch() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            durable.write_atomic(path, data)
        self._here[target, key] = path
        return path

    def get(self, target: str, key: str) -> Path | None:
        """The built file of this machine with its digest just checked, or None."""
        here = self._here.get((target, key))
        if here is not None and here.exists():
            return here
        about = {"version": BUILD_VERSION, "target": target, "key": key, "host": host_fingerprint()}
        try:
            index = _index(target, key)
        except InvalidRecord:
            return None
        sha_file = self.files.read(index, lambda data: _entry(data, **about))
        if sha_file is None:
            return None
        sha, file = sha_file
        name = f"{layout.build_dir(target, key)}/{file}"
        found = self.files.read(name, lambda data: _same(data, sha), limit=BUILD_LIMIT)
        if found is None:
            return None
        for used in (index, name):
            self.files.touch(used)
        return self._path(name)

    def _path(self, name: str) -> Path:
        path = self.files.path(name)
        assert path is not None
        return path


def _index(target: str, key: str) -> str:
    """One index file per host, so that hosts that share a root do not push each other out."""
    return f"{layout.build_dir(target, key)}/built-{host_fingerprint()[:16]}.json"


def _entry(data: bytes, **about: object) -> tuple[str, str]:
    value = durable.unseal(data, **about)
    sha, file = (value.get("sha256"), value.get("file")) if isinstance(value, dict) else (None, None)
    if not isinstance(sha, str) or not isinstance(file, str) or not _FILE.fullmatch(file):
        raise DamagedEntry("it names no built file")
    return sha, file


def _same(data: bytes, sha: str) -> bool:
    if durable.sha256(data) != sha:
        raise DamagedEntry("its digest is not what was built")
    return True

"""Quarantine: where an entry goes that is out of service, and the note beside it that says why and what to do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from accelopt_cache import durable, layout

NOTE = ".note"
"""Ending of the file beside a quarantined one that says why it is there."""

NEXT_STEP = (
    "Nothing here is used any more. Compile the model once in mode tune, or run `accelopt prewarm MODULE:FACTORY`: its region is "
    "searched and stored anew. `accelopt cache gc` removes this file after 30 days; it may be deleted at any time."
)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Why something was taken out of service. `word` is all of it that the file's name tells."""

    reason: str
    diagnosis: str
    word: str

    def text(self, name: str) -> bytes:
        """What is written beside it, for people: what it was, why it went, and the next step."""
        data = {
            "was": name,
            "reason": self.reason[:4000],
            "diagnosis": self.diagnosis[:20_000] or NEXT_STEP,
            "next": NEXT_STEP,
            "moved": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        return json.dumps(data, indent=2).encode() + b"\n"


def offender(root: Path, name: str) -> Path:
    """The path to move for `name`: a symbolic link on the way to it rather than a file of others behind the link."""
    path = root
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            break
    return path


def move_out(root: Path, name: str, path: Path, note: Note) -> bool:
    """Move `path` to the quarantine of `root`, with the note beside it; False where it stays in service."""
    quarantine = root / layout.QUARANTINE
    place = None
    try:
        if path != quarantine and path not in quarantine.parents:
            if os.path.lexists(quarantine) and (quarantine.is_symlink() or not quarantine.is_dir()):
                os.replace(quarantine, quarantine.with_name(f".quarantine.{secrets.token_hex(4)}"))
            durable.make_dirs(quarantine, below=root)
            place = _free(quarantine, path.name, note.word)
            os.replace(path, place)
        else:  # quarantine itself, or v1, is a file or a link: there is no better place than beside it
            os.replace(path, path.with_name(f".{path.name}.{note.word}.{secrets.token_hex(4)}"))
    except FileNotFoundError:
        return not os.path.lexists(path)  # another process moved it first
    except OSError:
        return False
    if place is not None:
        with contextlib.suppress(OSError):  # a full disk keeps no notes; the entry is out of service all the same
            durable.write_atomic(place.with_name(place.name + NOTE), note.text(name))
    return True


def _free(folder: Path, name: str, word: str) -> Path:
    """Where an entry goes: its own name and the word; a number of its own only where that is taken."""
    stem, suffix = os.path.splitext(name)
    place = folder / f"{stem[:80]}.{word}{suffix[:20]}"
    if not os.path.lexists(place):
        return place
    return folder / f"{stem[:80]}.{word}-{secrets.token_hex(4)}{suffix[:20]}"


def plain_word(word: str) -> str:
    """The word that a file's name tells, or "damaged" where it is none."""
    return word if re.fullmatch("[a-z]{1,20}", word) else "damaged"

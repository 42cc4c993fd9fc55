"""Archives: a zip of `thiele.json` and plain `.npy` arrays, written whole or not at all, read without running anything.

What the contents mean is told elsewhere. An archive never holds another as it stands: of a file that was cut off, the
end of an inner one would look like the end of the whole.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CONTENTS = "thiele.json"


class NotSaved(ValueError):
    """A file that is no saved fit, or cannot be read by this version."""


class Archive(NamedTuple):
    """What is in a file: JSON, and arrays by name."""

    contents: dict[str, Any]
    arrays: dict[str, np.ndarray]


def write_whole(path: Path, payload: bytes) -> Path:
    """Put `payload` at `path` so that a reader, and a machine that loses power, sees all of it or what was there."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"`path` must be a file, got the folder {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must be in a folder that exists, got {path}")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with open(beside, "xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name has to reach the disk too; elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return path


def packed(archive: Archive) -> bytes:
    """The bytes of an archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        # Without the hour: two files of one fit are equal, byte for byte.
        file.writestr(
            zipfile.ZipInfo(CONTENTS), json.dumps(archive.contents, indent=1, allow_nan=False), zipfile.ZIP_DEFLATED
        )
        for name, array in archive.arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(array), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), one.getvalue(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def unpacked(payload: bytes, path: Any, formats: dict[str, int]) -> Archive:
    """What `packed` made of it, if it is of one of these formats, none newer than its number; `path` is for errors."""
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as file:
            if CONTENTS not in file.namelist():
                raise NotSaved(f"{path} is no saved fit of thiele: it is an archive without {CONTENTS}")
            contents = json.loads(file.read(CONTENTS))
            _require_known(contents, path, formats)
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False)
                for name in file.namelist()
                if name.endswith(".npy")
            }
    except zipfile.BadZipFile as problem:
        raise NotSaved(
            f"{path} is damaged: {problem}"
            if payload[:2] == b"PK"
            else f"{path} is no saved fit of thiele: it is not an archive"
        ) from None
    except NotSaved:
        raise
    except (ValueError, EOFError, zlib.error, NotImplementedError) as problem:
        raise NotSaved(f"{path} is damaged: {problem}") from None
    return Archive(contents, arrays)


def _require_known(contents: Any, path: Any, formats: dict[str, int]) -> None:
    if not isinstance(contents, dict) or contents.get("format") not in formats:
        raise NotSaved(f"{path} is no saved fit of thiele: its {CONTENTS} is of another kind")
    version, newest = contents.get("version"), formats[contents["format"]]
    if not isinstance(version, int) or version < 1:
        raise NotSaved(f"{path} is damaged: its version is {version!r}")
    if version > newest:
        raise NotSaved(
            f"{path} was written by a newer thiele, in format {version}; this one reads formats up to {newest}: "
            "install a newer thiele"
        )

"""Save a panel as one file, and load a file of either kind.

The contents of its fits, as `thiele.store` has them, stand one after the other in `thiele.json`; the arrays of fit k
are in the folder k of the archive.

Loading computes the posteriors anew. The series are padded to one length for that, as when they were fitted, so that
one compilation serves all of them.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from thiele import store, training
from thiele.archives import Archive, NotSaved, packed, unpacked, write_whole
from thiele.fit import Fit
from thiele.panel import Panel, padded
from thiele.precision import double_precision
from thiele.rules import Site

FORMAT = "thiele panel"
VERSION = 1


def save(panel: Panel, path: str | os.PathLike) -> Path:
    """Write `panel` to `path`, in place of what is there; returns the path."""
    for key in panel:
        if not isinstance(key, str | int | float):
            raise TypeError(f"keys of a panel must be text or numbers to be saved, got {key!r}")
    fits = [store.archived(fit) for fit in panel.values()]
    contents = {
        "format": FORMAT,
        "version": VERSION,
        "name": panel.name,
        "keys": list(panel),
        "fits": [fit.contents for fit in fits],
    }
    arrays = {f"{k}/{name}": array for k, fit in enumerate(fits) for name, array in fit.arrays.items()}
    return write_whole(Path(path), packed(Archive(contents, arrays)))


@double_precision
def load(path: str | os.PathLike) -> Fit | Panel:
    """The fit that `fit.save(path)` wrote, or the panel that `panel.save(path)` wrote.

    No code in the file is run; a file that is not whole is refused.
    """
    archive = unpacked(Path(path).read_bytes(), path, {store.FORMAT: store.VERSION, FORMAT: VERSION})
    if archive.contents["format"] == store.FORMAT:
        return store.restored(archive, path)
    try:
        return _panel(archive, path)
    except NotSaved:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise NotSaved(f"{path} is damaged: {type(problem).__name__}: {problem}") from problem


def _panel(archive: Archive, path: Any) -> Panel:
    keys, fits = archive.contents["keys"], archive.contents["fits"]
    if not isinstance(keys, list) or not isinstance(fits, list) or len(keys) != len(fits) or not keys:
        raise NotSaved(f"{path} is damaged: it does not hold one fit for each of its keys")
    arrays: list[dict[str, Any]] = [{} for _ in fits]
    for name, array in archive.arrays.items():
        folder, _, rest = name.partition("/")
        arrays[int(folder)][rest] = array
    held = [
        store.restored(Archive(*one), f"{path}, series {key!r},", lambda fit: fit)
        for key, *one in zip(keys, fits, arrays, strict=True)
    ]
    longest = max(len(fit.data.time) for fit in held)
    fits = {key: _conditioned(fit, longest) for key, fit in zip(keys, held, strict=True)}
    return Panel(fits, archive.contents["name"])


def _conditioned(held: Fit, length: int) -> Fit:
    room = length - len(held.data.time)
    sites = held.sites
    if sites is not None:
        sites = Site(*(jnp.pad(x, ((0, room), *((0, 0),) * (x.ndim - 1))) for x in sites))
    posterior, _ = training.condition(held.model, padded(held.data, length), sites)
    return dataclasses.replace(held, posterior=posterior)

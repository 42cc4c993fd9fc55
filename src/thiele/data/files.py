"""Finding the files of the benchmark sets that are too large, or not free enough, to travel with the package."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple


class File(NamedTuple):
    """A file that a loader needs: its name, the checksum of its bytes, and where its contents come from."""

    name: str
    sha256: str
    source: str


_EXPERIMENTS = "the experiments published with the BayesNewton library"

FILES = {
    file.name: file
    for file in (
        File(
            "airline_accidents.csv",
            "ae14a1f512703d43ceef2763253e19887063e0974bc8da68003e849ddee76094",
            "public lists of accidents of commercial aircraft; Nickisch, Solin and Grigorevskiy (2018), ICML. "
            "One column `date` of 1210 ISO dates, 1919-07-21 to 2017-12-31",
        ),
        File(
            "banana.csv",
            "3b4bb4a45a532c8c590b788f8847a4ff2c599362c1a114596c3ade945539dbc4",
            "Rätsch, Onoda and Müller (2001), Machine Learning 42:287-320, as in the KEEL repository. "
            "Columns `x1`, `x2` and `label` (-1 or 1), 5300 rows",
        ),
        File(
            "binary_synthetic.npz",
            "52be8a4a1bf37819735d5e2fdd8992a068d99df76186ee292deb1ea1dd8b7506",
            "made by `thiele.data.binary`",
        ),
        File(
            "coal_folds.csv",
            "6be1a2f45442cc0ceb2b2751d4dd71b20f8cd2b7c56c5429a4937f40fb0edd01",
            _EXPERIMENTS,
        ),
        File(
            "electricity.npz",
            "7be3e3d5761d3b74a0041b3205a87bda165b78638e85c157d69b93db19df2dc4",
            "Hebrail and Berard (2012), Individual Household Electric Power Consumption, UCI Machine Learning "
            "Repository, doi 10.24432/C58K54. The first 282,636 minutes: `minute`, `global_active_power`, `start`",
        ),
        File(
            "motorcycle_folds.csv",
            "703744ca41ad6949805d8b84afd2d750fe33b19da384db4713e99adaee06f503",
            _EXPERIMENTS,
        ),
        File(
            "speech_female.npz",
            "c11c3295683c9feb23e91e9bb35802b2864e726be2d734f64885428d155cb0d2",
            f"a recording published with {_EXPERIMENTS}. `samples` (22050 values) and `sample_rate`",
        ),
    )
}


def folders() -> list[Path]:
    """Where files are looked for, in order."""
    places = []
    if os.environ.get("THIELE_DATA"):
        places.append(Path(os.environ["THIELE_DATA"]))
    # In a checkout, src/thiele/data/files.py lies four levels below the folder that holds `shared`.
    repository = Path(__file__).resolve().parents[3]
    places += [repository.parent / "shared" / "data", Path.cwd().parent / "shared" / "data"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    places.append(cache / "thiele")
    return list(dict.fromkeys(places))


def find(name: str) -> Path:
    """The path of a file whose checksum is right; an error that says what to do when there is none."""
    file = FILES[name]
    for folder in folders():
        path = folder / name
        if path.is_file():
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != file.sha256:
                raise ValueError(
                    f"{path} is not the file that was published: expected sha256 {file.sha256}, got {found}"
                )
            return path
    looked = "\n".join(f"  {folder}" for folder in folders())
    raise FileNotFoundError(
        f"{name} was not found. Looked in\n{looked}\nIt comes from {file.source}. "
        "Put it in one of these folders, or name its folder in the environment variable THIELE_DATA."
    )

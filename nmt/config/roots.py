"""The directories of corpora: resolves `data.root`, and names the directory that `nmt download` writes to."""

import os
from pathlib import Path

DOWNLOADS = Path("data", "downloads")
BESIDE = Path("..", "shared", "data")  # corpora that several checkouts of the project share


def downloads_directory() -> Path:
    """Return the directory of downloaded corpora: NMT_DATA, else data/downloads in the working directory."""
    return Path(os.environ.get("NMT_DATA") or DOWNLOADS)


def data_root(root: str) -> Path:
    """Return the directory that `data.root` stands for.

    `root` itself if it exists; else the first directory of this name below NMT_DATA, data/downloads and ../shared/data;
    else `root` itself. If `root` is absolute or contains `..`, only `root` itself is considered.
    """
    places = [Path(root)]
    if root and not places[0].is_absolute() and ".." not in places[0].parts:
        places += [place / root for place in (downloads_directory(), DOWNLOADS, BESIDE)]
    return next((place for place in places if place.is_dir()), places[0])

"""Raw arrays on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def open_array(path: Path) -> npt.NDArray[Any]:
    """Return a ``.npy`` array as a read-only memory map (an empty one, which cannot be mapped, is read)."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError:
        return np.asarray(np.load(path, allow_pickle=False))

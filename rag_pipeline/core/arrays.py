"""Raw arrays on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt


def open_array(path: Path) -> npt.NDArray[Any]:
    """Return a ``.npy`` array as a read-only memory map (an empty one, which cannot be mapped, is read)."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError:
        return np.asarray(np.load(path, allow_pickle=False))


def write_float32_header(file: BinaryIO, shape: tuple[int, int]) -> None:
    """Write the header of a ``.npy`` array of little-endian float32; its rows are to follow."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})


def write_float32(file: BinaryIO, shape: tuple[int, int], blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Write a ``.npy`` array of float32 block by block; the blocks' rows must add up to the shape.

    Written, not mapped: a full disk is then an error of the operating system and no signal that ends the process.
    """
    write_float32_header(file, shape)
    for block in blocks:
        file.write(np.ascontiguousarray(block, dtype="<f4").tobytes())

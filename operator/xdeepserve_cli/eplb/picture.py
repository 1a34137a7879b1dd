"""A heat map as PNG: layers from top to bottom, NPUs from left to right, dark is idle, white even, red overloaded."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

COLD, EVEN, HOT = (np.array(one, np.float64) for one in ((18, 52, 120), (250, 250, 245), (190, 20, 30)))
HOTTEST = 2.0  # times even load, and everything above
CELL, LARGEST = 8, 4096  # pixels
GAP = 2


def heat_map(*panels: NDArray[np.float64]) -> bytes:
    """Panels [layers, npus] of load in units of even load, one below the other."""
    rows: list[NDArray[np.uint8]] = []
    for panel in panels:
        cell = max(1, min(CELL, LARGEST // panel.shape[1]))
        pixels = _colours(panel).repeat(cell, 0).repeat(cell, 1)
        rows += [pixels, np.full((GAP * cell, pixels.shape[1], 3), 255, np.uint8)]
    return _png(np.concatenate(rows[:-1]))


def _colours(load: NDArray[np.float64]) -> NDArray[np.uint8]:
    below = np.clip(load, 0, 1)[..., None]
    above = np.clip((load - 1) / (HOTTEST - 1), 0, 1)[..., None]
    mixed = COLD + (EVEN - COLD) * below + (HOT - EVEN) * above
    return np.asarray(np.rint(mixed), np.uint8)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    height, width, _ = pixels.shape
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # filter 0 for every line
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

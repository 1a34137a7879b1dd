"""The six novels of Jane Austen (1811 to 1817, in the public domain), as clean paragraphs by chapter.

They come from Debian's package r-cran-janeaustenr (MIT; the texts are Project Gutenberg's). It need not be installed:

    apt-get download r-cran-janeaustenr && dpkg-deb -x r-cran-janeaustenr_*.deb novels

R keeps the package's data as one file of records, each a length and a zlib stream; a record is a vector of the lines
of one novel, serialised in R's XDR format: for the vector and for every string in it a word of flags, whose low byte
is the type, a length, and for a string its bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from pathlib import Path

DATA_IN_PACKAGE = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
SHA256 = "8fb5198960d0da724b1562f96e4221e5c1b41ff455000280b02c55980c3d8f21"  # of version 1.0.0-1
NOVELS = (
    "Emma", "Mansfield Park", "Northanger Abbey", "Persuasion", "Pride and Prejudice", "Sense and Sensibility",
)  # fmt: skip
Chapter = list[str]  # of paragraphs, each one line

_WORDS = struct.Struct(">ii")
_STRINGS, _STRING = 16, 9  # R's types STRSXP and CHARSXP
_HEADING = re.compile(r"(chapter|volume) [ivxl\d]+\.?$", re.IGNORECASE)
_END = re.compile(r"(finis|the end|a note on the text)\.?$", re.IGNORECASE)


def read_novels(directory: Path) -> dict[str, list[Chapter]]:
    """The chapters of each novel; `directory` is where the package was unpacked (`/` if it is installed)."""
    data = (directory / DATA_IN_PACKAGE).read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SystemExit(f"{directory / DATA_IN_PACKAGE}: not the file of r-cran-janeaustenr 1.0.0-1")
    return {name: chapters(lines) for name, lines in zip(NOVELS, _records(data), strict=True)}


def _records(data: bytes) -> list[list[str]]:
    records, position = [], 0
    while position < len(data):
        stream = zlib.decompressobj()
        records.append(_lines(stream.decompress(data[position + 4 :])))
        position = len(data) - len(stream.unused_data)
    return records


def _lines(raw: bytes) -> list[str]:
    (encoding_length,) = struct.unpack_from(">i", raw, 14)  # after "X\n" and three version numbers
    position = 18 + encoding_length
    flags, count = _WORDS.unpack_from(raw, position)
    position += _WORDS.size
    lines = []
    for _ in range(count):
        kind, length = _WORDS.unpack_from(raw, position)
        position += _WORDS.size
        if flags & 0xFF != _STRINGS or kind & 0xFF != _STRING:
            raise ValueError(f"a record that is no vector of strings, at byte {position}")
        lines.append(raw[position : position + length].decode())
        position += length
    return lines


def chapters(lines: list[str]) -> list[Chapter]:
    """Splits at the headings; what comes before the first one (the title) and after the end is left out."""
    result: list[Chapter] = []
    for paragraph in _paragraphs(lines):
        if _HEADING.match(paragraph):
            if not result or result[-1]:
                result.append([])
        elif _END.match(paragraph):
            break
        elif result and not paragraph.startswith("*"):  # a footnote
            result[-1].append(paragraph)
    return [chapter for chapter in result if chapter]


def _paragraphs(lines: list[str]) -> list[str]:
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    return [text for block in blocks if (text := _clean(block))]


def _clean(block: str) -> str:
    """One line of plain text: no marks of italics, no typesetter's spaces, straight quotes."""
    text = block.replace("_", "").translate(str.maketrans("‘’“”", "''\"\""))
    text = text.encode("ascii", "ignore").decode()
    return " ".join(text.split())


def split(novels: dict[str, list[Chapter]], every: int = 20) -> tuple[list[Chapter], list[Chapter]]:
    """Chapters to learn from, and every `every`-th chapter of each novel, held out."""
    numbered = [(number, chapter) for parts in novels.values() for number, chapter in enumerate(parts, start=1)]
    learned = [chapter for number, chapter in numbered if number % every]
    held_out = [chapter for number, chapter in numbered if number % every == 0]
    return learned, held_out

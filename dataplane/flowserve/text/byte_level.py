"""The alphabet of byte-level BPE: every byte is one printable character, so that token strings survive in JSON.

Printable Latin-1 stands for itself; the other bytes, in rising order, take the characters from U+0100 on.
Source: GPT-2's `bytes_to_unicode`, which DeepSeek's tokenizers use too.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHARACTERS = "".join(chr(0x100 + _OTHERS.index(byte)) if byte in _OTHERS else chr(byte) for byte in range(256))
_BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}


def to_characters(raw: bytes) -> str:
    """The token string of `raw`."""
    return "".join(CHARACTERS[byte] for byte in raw)


def to_bytes(token: str) -> bytes:
    """The bytes of a token string; a string outside the alphabet, as added tokens may be, stands for itself."""
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode()

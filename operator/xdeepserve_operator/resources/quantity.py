"""Quantities in the form in which the API server gives them back, so that comparing them needs no arithmetic."""

import math
from decimal import Decimal


def canonical_cpu(text: str) -> str:
    """Cores: ``0.25`` and ``250m`` are ``250m``, ``1000m`` is ``1``; parts of a milli-core are rounded up."""
    milli = math.ceil(Decimal(text[:-1]) if text.endswith("m") else Decimal(text) * 1000)
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def canonical_memory(text: str) -> str:
    """Binary sizes: ``1024Mi`` is ``1Gi``."""
    mebibytes = int(text[:-2]) * (1024 if text.endswith("Gi") else 1)
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"

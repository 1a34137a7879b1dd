"""The compiled part of the runtime (`native/`), where it is: it takes a C compiler when the package is installed.

Who uses it has a way of its own in NumPy too.
"""

from __future__ import annotations

from types import ModuleType

native: ModuleType | None
try:
    from flowserve.model import _native as native
except ImportError:
    native = None

native_bytes = native if native is not None and native.supported() else None
"""The same, for products of bytes: None where the processor has no instruction for them."""

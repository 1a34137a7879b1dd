"""The array types of the runtime. Shapes stand in the docstrings, as in f32[T, H]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

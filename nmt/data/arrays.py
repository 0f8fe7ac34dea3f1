"""Names of array types; the suffix of a variable has a letter for each axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
Indices = NDArray[np.int64]
Integers = NDArray[np.integer]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

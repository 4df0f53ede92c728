"""Array types by short names. Shapes stand in docstrings, since numpy's types do not say them.

Positions are indices into another array. A mask says of each entry of another array whether it is chosen.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["Float", "Int32", "Int64", "Mask", "Positions", "UInt16", "UInt64"]

Float = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt16 = npt.NDArray[np.uint16]
UInt64 = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

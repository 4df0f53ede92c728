"""Sorts parts of arrays inside compiled functions, where a sort of numpy would take long to compile."""

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import inner

__all__ = ["sort_in_place"]


@inner
def sort_in_place(values: npt.NDArray[np.int64], size: int) -> None:
    """Sort values[:size] in place, ascending.

    This is Shell's method, with gaps that shrink by 4/9. It is for the words of a passage, a few hundred at most times:
    sorting them costs little beside reading them. numba's own sort is ten functions, which take longer to compile.
    """
    gap = size
    while gap > 1:
        gap = max(4 * gap // 9, 1)
        for k in range(gap, size):
            value = values[k]
            at = k
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value

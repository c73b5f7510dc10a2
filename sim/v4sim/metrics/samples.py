"""Which samples of a long series are shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of `count` samples, evenly spread, the first and the last among them."""
    shown = min(count, most)
    if shown < 2:
        return np.arange(shown)
    return np.arange(shown) * (count - 1) // (shown - 1)

"""What clients see of consecutive decode steps: bursts of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(slots=True, init=False)
class Bursts:
    """Each of some sequences has a burst of tokens in each of k steps, which all end together.

    `gaps_ns` [rows] is the time from each sequence's previous burst to its first of these, which has
    `tokens` [rows]. The later steps last `durations_ns` [k − 1], and in each of them `of_size[n − 1]`
    [k − 1] sequences have a burst of n tokens, n = 1 to the verify width. Where that is 1,
    `tokens` and `of_size` are None.
    """

    gaps_ns: Int64s
    durations_ns: Int64s
    tokens: Int64s | None
    of_size: list[Int64s] | None

    def __init__(
        self,
        gaps_ns: Int64s,
        durations_ns: Int64s,
        tokens: Int64s | None = None,
        of_size: list[Int64s] | None = None,
    ) -> None:  # written out: compiled code makes one a block, and a generated one is interpreted
        self.gaps_ns, self.durations_ns = gaps_ns, durations_ns
        self.tokens, self.of_size = tokens, of_size

"""A block: the step, or the run of like steps, that a replica executes without choosing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from v4sim.engine.chunk import Chunk


@dataclass(slots=True, init=False)
class Block:
    """What a replica runs now. Only pure decode blocks have more than one step.

    `ends_ns` are the step boundaries; `parts_ns` [PARTS, steps] and `durations_ns` [steps] are there for
    blocks that were priced as a run. `steps` may be cut down while the block runs. Where finished calls
    leave after the first step, that step was priced alone: then `rows` and `new_tokens` tell its work per
    rank and `first_parts_ns` its parts, which are the first column of `parts_ns` as well.

    A run of prefill steps repeats its chunks, each time on top of the last: `run_parts_ns` per step.
    `__init__` is written out because a generated one is interpreted in compiled code.
    """

    start_ns: int
    ends_ns: Sequence[int] | NDArray[np.int64]
    steps: int
    chunks: list[list[Chunk]]
    decodes: list[bool]
    token: int
    kind: str
    first_parts_ns: list[int] | None
    rows: list[int] | None
    new_tokens: list[int] | None
    parts_ns: NDArray[np.int64] | None
    durations_ns: NDArray[np.int64] | None
    run_parts_ns: list[list[int]] | None

    def __init__(
        self,
        start_ns: int,
        ends_ns: Sequence[int] | NDArray[np.int64],
        steps: int,
        chunks: list[list[Chunk]],
        decodes: list[bool],
        token: int,
        *,
        kind: str = "decode",
        first_parts_ns: list[int] | None = None,
        rows: list[int] | None = None,
        new_tokens: list[int] | None = None,
        parts_ns: NDArray[np.int64] | None = None,
        durations_ns: NDArray[np.int64] | None = None,
        run_parts_ns: list[list[int]] | None = None,
    ) -> None:
        self.start_ns, self.ends_ns, self.steps = start_ns, ends_ns, steps
        self.chunks, self.decodes, self.token, self.kind = chunks, decodes, token, kind
        self.first_parts_ns, self.rows, self.new_tokens = first_parts_ns, rows, new_tokens
        self.run_parts_ns = run_parts_ns
        self.parts_ns, self.durations_ns = parts_ns, durations_ns

    def forget_rows(self, rows: list[int]) -> None:
        """Priced as an array and cut down to one step: from now on as if that had been priced alone."""
        if self.steps == 1 and self.parts_ns is not None:
            if self.first_parts_ns is None:
                self.first_parts_ns = [int(part) for part in self.parts_ns[:, 0]]
                self.rows, self.new_tokens = rows, [0] * len(rows)
            self.ends_ns = [int(self.ends_ns[0])]
            self.parts_ns = self.durations_ns = None

"""What decode steps share while nobody joins or leaves."""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.cost.attention import DecodeTerms
from v4sim.cost.domain import Seen


@dataclass(slots=True, init=False)
class FixedRows:
    """What decode steps with the same rows on every rank have in common (`ProfileCost.fixed`).

    Per rank the coefficients of its attention and its mHC; the parts [PARTS] of what all do together; the
    host work of the scheduler, which waits for nothing or, `hidden_cpu`, shows only where the GPU is
    faster; and where to note how far a run goes.
    """

    terms: list[DecodeTerms]
    mhc_ns: list[float]
    parts_ns: list[int]
    cpu_ns: int
    hidden_cpu: bool
    seen: Seen

    def __init__(
        self,
        terms: list[DecodeTerms],
        mhc_ns: list[float],
        parts_ns: list[int],
        cpu_ns: int,
        hidden_cpu: bool,
        seen: Seen,
    ) -> None:  # written out: a generated one is interpreted in compiled code
        self.terms, self.mhc_ns, self.parts_ns = terms, mhc_ns, parts_ns
        self.cpu_ns, self.hidden_cpu, self.seen = cpu_ns, hidden_cpu, seen

"""What a step costs: the parts, the `StepCost` protocol and its simplest form.

A replica steps in lockstep: one `RankLoad` per attention-DP rank goes in, integer nanoseconds per
part come out, and the step lasts exactly the sum of the parts. Two paths answer the same question:
`step` (pure Python, one step of any kind) and `decode` (numpy, k decode steps with fixed rows).
They must agree bit for bit, so a model may use only + * / max min and piecewise-linear tables,
in the same order of operations on both, and rounds each part once (half to even). For the profiles' model
compiled code has a third, `run.DecodeRun`, which must agree as well.

Leaves out: transfers (the engine owns links) and anything random (draws are made at compile time).
Units: tokens, sequences, integer nanoseconds; constructor arguments in seconds end in `_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from v4sim.cost.load import RankLoad
from v4sim.errors import ProfileError

PARTS: tuple[str, ...] = (
    "projections",
    "index_scan",
    "topk",
    "sparse_attention",
    "hca",
    "swa",
    "compressor",
    "attention_other",
    "mhc",
    "moe",
    "dispatch_combine",
    "all_reduce",
    "shared_expert",
    "lm_head",
    "mtp_draft",
    "h2d",
    "overhead",
    "idle_wait",
    "cpu",
)
PART_INDEX: dict[str, int] = {name: i for i, name in enumerate(PARTS)}
KINDS: tuple[str, ...] = ("decode", "prefill", "mixed")

Int64 = NDArray[np.int64]


class StepCost(Protocol):
    """Batch shape to time. `width` is the verify width: 1 without speculation, k + 1 with k drafts."""

    def step(self, loads: Sequence[RankLoad], width: int, kind: str) -> list[int]:
        """Nanoseconds per entry of PARTS for one step; the step lasts their sum."""
        ...

    def decode(self, rows: Sequence[int], ctx_sum: Int64, ctx_max: Int64, width: int) -> Int64:
        """Nanoseconds [parts, k] of k decode steps; ctx arrays are [k, ranks]."""
        ...

    def provenance(self) -> list[dict[str, Any]]:
        """One dict per operation used: op, kind, source, domain, residual."""
        ...

    def domain_warnings(self) -> list[str]:
        """Operations asked outside their table so far, and how far."""
        ...


class ConstantCost:
    """Step time linear in the busiest rank's rows and prefill tokens: for queueing-theory tests.

    The constant is booked as `overhead`, rows as `attention_other`, prefill tokens as `projections`.
    """

    def __init__(self, step_s: float, per_row_s: float = 0.0, per_prefill_token_s: float = 0.0) -> None:
        for name, value in (
            ("step_s", step_s),
            ("per_row_s", per_row_s),
            ("per_prefill_token_s", per_prefill_token_s),
        ):
            if not 0.0 <= value < float("inf"):
                raise ProfileError(
                    f"ConstantCost {name}={value!r}: a time must be finite and not negative; give seconds."
                )
        self._step_ns = step_s * 1e9
        self._row_ns = per_row_s * 1e9
        self._token_ns = per_prefill_token_s * 1e9

    def step(self, loads: Sequence[RankLoad], width: int, kind: str) -> list[int]:
        rows = tokens = 0
        for load in loads:
            if load.rows > rows:
                rows = load.rows
            if load.prefill:
                tokens = max(tokens, load.prefill_tokens)
        parts = [0] * len(PARTS)
        parts[_OVERHEAD] = round(self._step_ns)
        parts[_ROWS] = round(self._row_ns * rows)
        parts[_TOKENS] = round(self._token_ns * tokens)
        return parts

    def decode(self, rows: Sequence[int], ctx_sum: Int64, ctx_max: Int64, width: int) -> Int64:
        out = np.zeros((len(PARTS), ctx_sum.shape[0]), dtype=np.int64)
        out[_OVERHEAD] = round(self._step_ns)
        out[_ROWS] = round(self._row_ns * max(rows, default=0))
        return out

    def provenance(self) -> list[dict[str, Any]]:
        return [
            {
                "op": "constant_step",
                "kind": "roofline",
                "source": "constant given by the caller",
                "domain": "any load",
                "residual": None,
            }
        ]

    def domain_warnings(self) -> list[str]:
        return []


_OVERHEAD = PART_INDEX["overhead"]
_ROWS = PART_INDEX["attention_other"]
_TOKENS = PART_INDEX["projections"]

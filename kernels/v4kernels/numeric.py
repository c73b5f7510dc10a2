"""Error bounds of the kernels, derived, and the checks that use them.

Notation: u is the unit round-off of a format (half the distance from 1 to the next number): fp32 2^-24,
bf16 2^-8. A sum of n products with terms t_i, accumulated in a format of round-off u in any order, is off
by at most (n - 1)·u·Σ|t_i| to first order (Higham, *Accuracy and Stability*, §3). The reference computes
the same sum in fp64 and also Σ|t_i|, so a bound is `factor × magnitude`, per element; there is no fitted
tolerance. Products of e4m3 or e2m1 values are exact in fp32, so only accumulation counts there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

U_FP32 = 2.0**-24
U_BF16 = 2.0**-8
# Triton's interpreter truncates where the GPU rounds a cast to bf16.
U_BF16_TRUNCATED = 2.0**-7
U_E4M3 = 2.0**-4
U_TF32 = 2.0**-11
# Hopper's FP8 tensor core keeps about 14 bits while it adds (DeepSeek-V3 report, §3.3.2); truncation, not
# rounding.
U_FP8_HOPPER = 2.0**-13
SMALLEST = 2.0**-100  # below every magnitude the tests use; keeps 0 <= 0 comparisons meaningful


def bf16_roundoff(device: torch.device) -> float:
    """Round-off of a kernel's cast to bf16 where it runs."""
    return U_BF16 if device.type == "cuda" else U_BF16_TRUNCATED


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a result is from its reference, relative to what is allowed."""

    worst_ratio: float
    """max |got - want| / bound; at most 1 is good."""
    max_abs: float
    at: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return self.worst_ratio <= 1.0


def accumulation_factor(terms: int, u: float) -> float:
    """(n - 1)·u to first order, with one rounding for storing the result."""
    return terms * u


def deviation(got: Tensor, want: Tensor, bound: Tensor | float) -> Deviation:
    """Largest excess of |got - want| over `bound`; NaN anywhere, or a difference at infinity, is
    infinitely bad.
    """
    if got.shape != want.shape:
        raise ValueError(f"shapes differ: got {tuple(got.shape)}, want {tuple(want.shape)}")
    got64, want64 = got.double().cpu(), want.double().cpu()
    same_infinity = torch.isinf(want64) & (got64 == want64)
    difference = torch.where(same_infinity, 0.0, (got64 - want64).abs())
    limit = torch.as_tensor(bound, dtype=torch.float64).cpu().broadcast_to(want64.shape)
    limit = torch.where(torch.isfinite(limit), limit, SMALLEST) + SMALLEST
    ratio = torch.nan_to_num(difference / limit, nan=torch.inf)
    if ratio.numel() == 0:
        return Deviation(0.0, 0.0, ())
    worst = int(ratio.argmax())
    at = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), ratio.shape))
    return Deviation(
        float(ratio.flatten()[worst]), float(torch.nan_to_num(difference, nan=torch.inf).max()), at
    )


def similarity_gap(got: Tensor, want: Tensor) -> float:
    """1 - 2<x, y> / (|x|² + |y|²): 0 for equal tensors; about half the squared relative error when
    close.
    """
    x, y = got.double().flatten().cpu(), want.double().flatten().cpu()
    norm = float((x * x).sum() + (y * y).sum())
    return 0.0 if norm == 0 else 1.0 - 2.0 * float((x * y).sum()) / norm

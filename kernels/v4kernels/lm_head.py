"""The LM head through torch: [tokens, hidden] · [hidden, vocabulary] in bf16, sharded over `parts`
ranks if asked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from v4kernels import checks, projections
from v4kernels.matrices import Matrix
from v4kernels.shapes import ModelShape
from v4kernels.work import Work


def matrix(shape: ModelShape, parts: int = 1) -> Matrix:
    """The slice of one rank."""
    checks.choose(shape.vocab % parts, f"vocabulary % {parts}", (0,))
    return Matrix("lm_head", shape.hidden, shape.vocab // parts)


def work(shape: ModelShape, tokens: int, parts: int = 1) -> Work:
    """The weights dominate a decode step: 1.06 GB for Flash."""
    return matrix(shape, parts).work(tokens, "bf16")


def prepare(shape: ModelShape, tokens: int, device: torch.device, parts: int = 1) -> Callable[[], Tensor]:
    """A closure that runs it once on random operands."""
    return projections.prepare(matrix(shape, parts), tokens, "bf16", device)

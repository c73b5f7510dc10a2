"""The dense matrices of a V4 layer through torch: what cuBLAS makes of them, so that a measured profile
is complete.

Which matrices there are is in `matrices`. bf16 anywhere; `fp8` (e4m3 with
one scale per tensor, `torch._scaled_mm`) where the device has it: the same operands and rate as the
served 128x128-block FP8, without its scale reads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from v4kernels import checks
from v4kernels.matrices import Matrix


def prepare(
    matrix: Matrix, tokens: int, dtype: str, device: torch.device, generator: torch.Generator | None = None
) -> Callable[[], Tensor]:
    """A closure that runs the product once on random operands: what a measurer times."""
    checks.choose(dtype, "dtype", ("bf16", "fp8"))
    x = torch.randn(matrix.groups, tokens, matrix.inputs, generator=generator).to(device)
    w = torch.randn(matrix.groups, matrix.outputs, matrix.inputs, generator=generator).to(device)
    w *= matrix.inputs**-0.5
    if dtype == "bf16":
        a, b = x.to(torch.bfloat16), w.to(torch.bfloat16).transpose(1, 2)
        if matrix.groups == 1:
            return lambda: a[0] @ b[0]
        return lambda: torch.bmm(a, b)
    one = torch.ones((), device=device)
    pairs = [(p.to(torch.float8_e4m3fn), q.to(torch.float8_e4m3fn).T) for p, q in zip(x, w, strict=True)]

    def scaled() -> Tensor:
        products = [torch._scaled_mm(p, q, one, one, out_dtype=torch.bfloat16) for p, q in pairs]
        return products[0] if len(products) == 1 else torch.stack(products)

    return scaled

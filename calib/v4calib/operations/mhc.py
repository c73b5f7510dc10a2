"""mHC: collapse before a sublayer and expansion after it, timed together; a layer has two of each."""

from __future__ import annotations

from v4calib.grid import Grid, Point, token_points
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import worst
from v4calib.roofline import Work
from v4kernels.shapes import SINKHORN_ITERATIONS, STREAMS, model

MIXES = 24


class Mhc(LaunchedOperation):
    """One collapse and one expansion."""

    name = "mhc"
    about = "mHC collapse and expansion"
    kernel = "v4kernels.mhc"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return token_points(self.name, model_name, axes)

    def configuration(self, point: Point) -> str:
        return f"{point.model} {point['tokens']}"  # the number of parts is compiled in

    def work(self, point: Point) -> Work:
        tokens, hidden = point["tokens"], model(point.model).hidden
        streams = tokens * STREAMS * hidden * 2
        return Work(
            read_bytes=3 * streams + tokens * hidden * 2 + MIXES * STREAMS * hidden * 4,
            write_bytes=streams + tokens * hidden * 2,
            matrix_flops=2 * tokens * STREAMS * hidden * MIXES,
            fp32_ops=tokens * STREAMS * hidden * (1 + 1 + 5),
        )

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).read_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import mhc as kernel
        from v4kernels import numeric
        from v4kernels.reference import mhc as reference

        tokens, hidden = point["tokens"], model(point.model).hidden
        sets = [
            (
                torch.randn(tokens, STREAMS, hidden, device=torch_device).to(torch.bfloat16),
                torch.randn(tokens, hidden, device=torch_device).to(torch.bfloat16),
                torch.randn(MIXES, STREAMS * hidden, device=torch_device) / (STREAMS * hidden) ** 0.5,
            )
            for _ in range(copies)
        ]
        base = torch.randn(MIXES, device=torch_device)
        scale = torch.rand(3, device=torch_device) + 0.5

        def run(copy: int) -> object:
            x, y, fn = sets[copy]
            if not kernels:
                _, post, comb = reference.collapse(
                    x.float(), fn, base, scale, 1e-6, 1e-6, SINKHORN_ITERATIONS
                )
                return reference.expand(x.float(), y.float(), post, comb)
            _, post, comb = kernel.collapse(x, fn, base, scale)
            return kernel.expand(x, y, post, comb)

        def check() -> str | None:
            x, y, fn = sets[0][0][:4].contiguous(), sets[0][1][:4].contiguous(), sets[0][2]
            _, post, comb = kernel.collapse(x, fn, base, scale)
            got = kernel.expand(x, y, post, comb)
            x64, fn64, base64, scale64 = [t.double().cpu() for t in (x, fn, base, scale)]
            _, want_post, want_comb = reference.collapse(
                x64, fn64, base64, scale64, 1e-6, 1e-6, SINKHORN_ITERATIONS
            )
            want = reference.expand(x64, y.double().cpu(), want_post, want_comb)
            terms = x64.abs().flatten(1) @ fn64.abs().T
            slack = 4 * numeric.U_FP32 * STREAMS * hidden * float(terms.amax())
            magnitude = 2 * y.double().cpu().abs() + x64.abs().sum(1)
            bound = (
                numeric.bf16_roundoff(got.device) * want.abs() + (4 * slack + 1e-5) * magnitude[:, None, :]
            )
            return worst(self.name, numeric.deviation(got, want, bound))

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))

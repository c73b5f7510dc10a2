"""The compressors of CSA (main and index), HCA and V4.1's CSA2: states of new tokens to entries.

Decode: every token is a sequence of its own, one in `ratio` completes an entry. Prefill: one sequence.
Counts are the kernel's own.
"""

from __future__ import annotations

from v4calib.grid import Grid, Point
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.layers import layer_kinds
from v4calib.operations.tensors import worst
from v4calib.roofline import Work
from v4kernels.shapes import HCA_COMPRESSOR, HEAD_DIM, INDEX_COMPRESSOR, CompressorShape

_SHAPES = {
    "c4": CompressorShape(HEAD_DIM, 4, overlap=True),
    "index": INDEX_COMPRESSOR,
    "c128": HCA_COMPRESSOR,
    "c2": CompressorShape(HEAD_DIM, 2, overlap=False),
    "c1": CompressorShape(HEAD_DIM, 1, overlap=False),
}
_FORMATS = {"c4": "fp8_584", "index": "index_fp8", "c128": "fp8_584", "c2": "fp4_288", "c1": "fp4_288"}
_ENTRY_BYTES = {"fp8_584": 584, "index_fp8": 132, "fp4_288": 288}
_PAGE_ENTRIES = {"c128": 2}
_PAGE_ENTRIES_ELSE = 64
_DECODE_TOKENS = 512


class Compressor(LaunchedOperation):
    """All three, by kind and phase."""

    name = "compressor"
    about = "compressors of the model's entries and index keys"
    kernel = "v4kernels.compressor"
    group = "tokens"

    def points(self, model: str, axes: Grid) -> list[Point]:
        return [
            Point(self.name, model, (("tokens", t), ("kind", kind), ("phase", phase)), _held(axes.tokens, i))
            for i, t in enumerate(axes.tokens)
            for kind in dict.fromkeys(c for k in layer_kinds(model) for c in k.compressors)
            for phase in ("decode", "prefill")
            if phase == "prefill" or t <= _DECODE_TOKENS
        ]

    def configuration(self, point: Point) -> str:
        return point.word("kind")

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=_SHAPES[point.word("kind")].ratio, phase="prefill")

    def work(self, point: Point) -> Work:
        shape, tokens = _SHAPES[point.word("kind")], point["tokens"]
        entries = self._entries(point)
        row = 4 * shape.state_width
        decode = point.word("phase") == "decode"
        read = entries * shape.window * (row // shape.series) + tokens * row if decode else tokens * row
        return Work(
            read_bytes=read,
            write_bytes=entries * _ENTRY_BYTES[_FORMATS[point.word("kind")]] + tokens * row,
            fp32_ops=entries * shape.dim * (6 * shape.window + 12),
        )

    def _entries(self, point: Point) -> int:
        ratio, tokens = _SHAPES[point.word("kind")].ratio, point["tokens"]
        if point.word("phase") == "prefill":
            return tokens // ratio
        return sum(1 for r in range(tokens) if (r + 1) % ratio == 0)

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import compressor as kernel
        from v4kernels import layouts, numeric
        from v4kernels.reference import compressor as reference

        kind, tokens = point.word("kind"), point["tokens"]
        shape, page_entries = _SHAPES[kind], _PAGE_ENTRIES.get(kind, _PAGE_ENTRIES_ELSE)
        fmt = layouts.entry_format(_FORMATS[kind])
        if point.word("phase") == "decode":
            base = 4 * shape.window
            runs, positions = [1] * tokens, [base + r % shape.ratio for r in range(tokens)]
        else:
            runs, positions = [tokens], [0]
        longest = max(p + n for p, n in zip(positions, runs, strict=True))
        pages = longest // shape.ratio // page_entries + 1
        table = torch.randperm(len(runs) * pages).to(torch.int32).view(len(runs), pages)
        chunks = kernel.plan(
            runs, positions, list(range(len(runs))), shape.ratio, table, page_entries, torch_device
        )
        states = [torch.randn(tokens, shape.state_width, device=torch_device) for _ in range(copies)]
        rings = [
            torch.randn(len(runs), shape.window, shape.state_width, device=torch_device)
            for _ in range(copies)
        ]
        bias = torch.randn(shape.ratio, shape.series * shape.dim, device=torch_device)
        norm = 0.5 + torch.rand(shape.dim, device=torch_device)
        rope = reference.rope_table(max(longest, tokens) + shape.ratio, 160000.0).to(torch_device)
        data = layouts.new_cache(fmt, len(runs) * pages, page_entries, torch_device).zero_()
        cache = layouts.PagedCache(data, fmt, page_entries)

        def run(copy: int) -> object:
            if kernels:
                kernel.compress(states[copy], rings[copy], bias, norm, rope, chunks, cache, shape)
                return None
            padded = states[copy]
            if tokens < shape.ratio:
                padded = torch.cat([padded, rings[copy][0][: shape.ratio - tokens]])
            return reference.compress(padded, bias, norm, rope, shape, 1e-6)

        def check() -> str | None:
            """A history of its own, from its start, in one chunk."""
            count = 2 * shape.ratio
            small = kernel.plan([count], [0], [0], shape.ratio, table[:1], page_entries, torch_device)
            states_here = torch.randn(count, shape.state_width, device=torch_device)
            table_here = reference.rope_table(count + shape.ratio, 160000.0).to(torch_device)
            here = layouts.PagedCache(data.clone(), fmt, page_entries)
            kernel.compress(states_here, rings[0].clone(), bias, norm, table_here, small, here, shape)
            want = reference.compress(
                states_here.double().cpu(), bias.cpu(), norm.cpu(), table_here.cpu(), shape, 1e-6
            )
            got = here.read(layouts.slots_of(table[0], page_entries, torch.arange(2)).to(torch_device)).cpu()
            block = {"fp8_584": 64, "index_fp8": 128, "fp4_288": 16}[fmt.name]
            top = want.abs().unflatten(1, (-1, block)).amax(-1).repeat_interleave(block, 1)
            # Half a step of e4m3 is 2^-4 of a value; beside a tie or a scale step it may be a whole one. The
            # largest steps of e2m1 are a third of a block's maximum, whose scale is rounded by 2^-4 itself.
            bound = top * 0.4 if fmt is layouts.FP4_288 else want.abs() * 2**-3 + top * 2**-9
            return worst(self.name, numeric.deviation(got, want, bound + 1e-5))

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))


def _held(tokens: tuple[int, ...], i: int) -> bool:
    return i % 3 == 2 and i < len(tokens) - 1

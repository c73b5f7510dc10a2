"""V4.1's hierarchical indexer: the pool that one layer publishes, and the scan of layers that choose in it.

`candidate_pool` makes the pool from a row of logits: the best logit of every block of eight entries, and the
2048 best blocks (the newest is always among them). `candidate_scan` scores the 16,384 entries of such a pool
for query tokens that each have a list of their own. The simulator prices a pool by the legs of the dense
scan: rows of the candidate form show how well that does. Counts are the kernels' own.
"""

from __future__ import annotations

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point, inner
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.index_scan import PAGE_ENTRIES, queries, refuse_keys, scan_bound, scan_work
from v4calib.operations.tensors import filled_cache, sample, scattered_tables, worst
from v4calib.operations.topk import topk_work
from v4calib.roofline import Work
from v4kernels.shapes import model

_SCAN_TOKENS = 512
_HISTORY_ENTRIES = 262_144


class CandidatePool(LaunchedOperation):
    """Logits of the source layer to a list of blocks, one row a query token."""

    name = "candidate_pool"
    about = "V4.1: best blocks of a row of logits"
    kernel = "v4kernels.topk"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        pool = model(model_name).candidate_entries
        contexts = [c for c in axes.contexts if c > pool] if pool else []
        return [
            Point(
                self.name, model_name, (("tokens", tokens), ("context", context)), inner(axes.batches, tokens)
            )
            for tokens in axes.batches
            for context in contexts
            if tokens * context <= axes.max_batch_context
        ]

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1, context=2 * model(point.model).candidate_entries)

    def work(self, point: Point) -> Work:
        """The logits once; their maxima written, then read twice by the selection."""
        shape, rows, columns = model(point.model), point["tokens"], point["context"]
        blocks = columns // shape.candidate_block_entries
        chosen = topk_work([blocks] * rows, shape.candidate_blocks)
        return Work(
            read_bytes=4 * rows * columns + chosen.read_bytes,
            write_bytes=4 * rows * blocks + chosen.write_bytes,
            fp32_ops=rows * columns + chosen.fp32_ops,
        )

    def footprint_bytes(self, point: Point) -> int:
        return 4 * point["tokens"] * point["context"]

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import topk as kernel
        from v4kernels.reference import topk as reference

        shape, rows, columns = model(point.model), point["tokens"], point["context"]
        entries, keep = shape.candidate_block_entries, shape.candidate_blocks
        logits = torch.randn(copies, rows, columns, device=torch_device)
        visible = torch.full((rows,), columns, dtype=torch.int32, device=torch_device)
        blocks = torch.full((rows,), columns // entries, dtype=torch.int32, device=torch_device)

        def refer(row: int, copy: int) -> list[int]:
            maxima = reference.block_maxima(
                logits[copy, row : row + 1].cpu(), visible[row : row + 1].cpu(), entries
            )
            return reference.topk(torch.tensor(maxima), blocks[row : row + 1].cpu(), keep)[0]

        def run(copy: int) -> object:
            if kernels:
                return kernel.topk(kernel.block_maxima(logits[copy], visible, entries), blocks, keep)
            return [refer(row, copy) for row in range(rows)]

        def check() -> str | None:
            got = kernel.topk(kernel.block_maxima(logits[0], visible, entries), blocks, keep)
            same = all(sorted(got[row].tolist()) == refer(row, 0) for row in sample(2, rows))
            return None if same else "the pool holds other blocks than its reference"

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))


class CandidateScan(LaunchedOperation):
    """Index logits of query tokens over their own pools."""

    name = "candidate_scan"
    about = "V4.1: index logits inside a candidate pool"
    kernel = "v4kernels.index_scan"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        if not model(model_name).candidate_entries:
            return []
        tokens = tuple(t for t in axes.tokens if t <= _SCAN_TOKENS)
        return [Point(self.name, model_name, (("tokens", t),), inner(tokens, t)) for t in tokens]

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        return refuse_keys("fp4", facts) or super().refuse(point, facts)

    def matrix_format(self, point: Point) -> str:
        return "fp4"

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1)

    def work(self, point: Point) -> Work:
        pairs = point["tokens"] * model(point.model).candidate_entries
        return scan_work(pairs, pairs, point["tokens"], model(point.model).index_heads, "fp4")

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import index_scan as kernel
        from v4kernels import layouts, numeric
        from v4kernels.reference import index_scan as reference

        shape, tokens, fmt = model(point.model), point["tokens"], layouts.INDEX_FP4
        block, keep = shape.candidate_block_entries, shape.candidate_blocks
        tables, pages = scattered_tables([_HISTORY_ENTRIES], PAGE_ENTRIES, copies, torch_device)
        cache = filled_cache(fmt, pages, PAGE_ENTRIES, torch_device)
        q, q_scale, weights = queries(tokens, shape.index_heads, "fp4", torch_device)
        rows = [
            torch.randperm(_HISTORY_ENTRIES // block)[:keep].sort().values for _ in range(min(tokens, 16))
        ]
        lists = torch.stack([rows[t % len(rows)] for t in range(tokens)]).to(torch.int32).to(torch_device)
        zero = torch.zeros(tokens, dtype=torch.int32, device=torch_device)
        start = torch.arange(tokens + 1, dtype=torch.int32, device=torch_device)
        seen = torch.full((tokens,), _HISTORY_ENTRIES, dtype=torch.int32, device=torch_device)
        out = torch.empty(tokens, keep * block, dtype=torch.float32, device=torch_device)

        def launch(copy: int) -> object:
            return kernel.index_scan(
                q, q_scale, weights, cache, tables[copy], zero, start, seen, fmt=fmt,
                page_entries=PAGE_ENTRIES, max_visible=0, tokens_per_group=1, candidates=lists,
                candidate_entries=block, out=out,
            )  # fmt: skip

        def refer(few: list[int], copy: int, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
            """On the host, over the pages of one copy in their order."""
            here = cache[tables[copy][0].long()].cpu()
            return reference.index_scan(
                q[few].cpu(), None if q_scale is None else q_scale[few].cpu(), weights[few].cpu(), here,
                torch.arange(len(here), dtype=torch.int32)[None], zero[few].cpu(), seen[few].cpu(), fmt=fmt,
                page_entries=PAGE_ENTRIES, columns=blocks * block, candidates=lists[few][:, :blocks].cpu(),
                candidate_entries=block,
            )  # fmt: skip

        def check() -> str | None:
            out.fill_(float("nan"))
            launch(0)
            few, blocks = sample(3, tokens), 64
            want, magnitude = refer(few, 0, blocks)
            bound = scan_bound(shape.index_heads, "fp4", torch_device) * magnitude
            if torch.isnan(out).any():
                return "candidate_scan leaves logits unwritten"
            return worst(self.name, numeric.deviation(out[few][:, : blocks * block], want, bound))

        def run(copy: int) -> object:
            return launch(copy) if kernels else refer(list(range(tokens)), copy, keep)

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))

"""CSA attention over selected entries, and HCA attention over all of them, decode and prefill.

Sparse attention is a launch over query tokens, decode and prefill alike: `selected` entries each (none, or
the full top-k) scattered over a history of `context` tokens, which is what its caches and TLBs see. HCA
reads every C128 entry of a sequence. Counts are the kernels' own: 4 x heads x 512 FLOPs an entry and query;
entries of a sequence cross HBM once however many of its tokens read them. V4.1 selects 288-byte FP4 entries
beside a 528-byte window, which needs tensor memory; every copy has a history and windows of its own.
"""

from __future__ import annotations

from typing import Any

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point, chunk_points, contexts_of, decode_points, entries_seen
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import filled_cache, sample, scattered_tables, worst
from v4calib.roofline import Work
from v4kernels.shapes import HEAD_DIM, WINDOW, model

ENTRY_BYTES = {"fp8_584": 584, "fp4_288": 288, "fp8_528": 528}
C4_PAGE_ENTRIES, C128_PAGE_ENTRIES, WINDOW_PAGE_ENTRIES = 64, 2, 256
HCA_RATIO = 128
_FILL_CONTEXT = 65_536
_TAIL_CONTEXTS = (131_072, 524_288, 1_048_576)
_WINDOW_PAGES = 512
_DISTINCT_TOKENS = 64


def attention_work(heads: int, pairs: int, tokens: int, entry_bytes: int) -> Work:
    """As `v4kernels.attention.attention_work` counts."""
    return Work(
        read_bytes=entry_bytes + tokens * heads * HEAD_DIM * 2,
        write_bytes=tokens * heads * HEAD_DIM * 2,
        matrix_flops=4 * pairs * heads * HEAD_DIM,
        fp32_ops=pairs * (heads * (6 + 16) + 2 * HEAD_DIM),
    )


class SparseAttention(LaunchedOperation):
    """Window and selected entries, one row a query token."""

    name = "sparse_attention"
    about = "CSA attention over the window and the selected entries"
    kernel = "v4kernels.sparse_attention"
    group = "tokens"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        top = model(model_name).index_topk
        context = min(_FILL_CONTEXT, axes.contexts[-1])
        points = []
        for i, tokens in enumerate(axes.tokens):
            held = i % 3 == 2 and i < len(axes.tokens) - 1
            for selected in (0, top):
                sizes = (("tokens", tokens), ("selected", selected), ("context", context))
                points.append(Point(self.name, model_name, sizes, held))
        for tail in _TAIL_CONTEXTS:
            if tail <= axes.contexts[-1]:
                sizes = (("tokens", 1), ("selected", top), ("context", tail))
                points.append(Point(self.name, model_name, sizes))
        return points

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        shape = model(point.model)
        if facts.kind == "cuda" and facts.arch < 100 and shape.main_format != shape.window_format:
            return f"sm_{facts.arch} has no tensor memory for two entry formats in one softmax"
        return super().refuse(point, facts)

    def configuration(self, point: Point) -> str:
        return f"{point.model} {'selected' if point['selected'] else 'window'}"

    def twin(self, point: Point) -> Point:
        return point.with_sizes(tokens=1, context=4 * max(point["selected"], 64))

    def work(self, point: Point) -> Work:
        tokens, selected = point["tokens"], point["selected"]
        pairs = tokens * (WINDOW + selected)
        return attention_work(model(point.model).heads, pairs, tokens, self._entry_bytes(point))

    def _entry_bytes(self, point: Point) -> int:
        """Distinct entries: a token's are, those of many tokens overlap as random draws do."""
        tokens, selected, history = point["tokens"], point["selected"], point["context"] // 4
        window = min(tokens * WINDOW, _WINDOW_PAGES * WINDOW)
        distinct = selected
        if tokens > 1:
            distinct = int(history * (1 - (1 - selected / history) ** tokens))
        shape = model(point.model)
        return ENTRY_BYTES[shape.window_format] * window + ENTRY_BYTES[shape.main_format] * distinct

    def footprint_bytes(self, point: Point) -> int:
        return self._entry_bytes(point) + point["tokens"] * model(point.model).heads * HEAD_DIM * 4

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        import torch

        from v4kernels import layouts
        from v4kernels.sparse_attention import sparse_attention
        from v4kernels.swa_attention import swa_attention

        tokens, selected, context = point["tokens"], point["selected"], point["context"]
        base = _Attention(point.model, tokens, copies, torch_device)
        fmt = layouts.entry_format(model(point.model).main_format)
        pages = max(1, context // 4 // C4_PAGE_ENTRIES) if selected else 1
        data = filled_cache(fmt, pages * copies, C4_PAGE_ENTRIES, torch_device)
        cache = layouts.PagedCache(data, fmt, C4_PAGE_ENTRIES)
        history = pages * C4_PAGE_ENTRIES

        def draw(copy: int) -> Any:
            """Slots of one copy's own history."""
            if tokens > _DISTINCT_TOKENS:  # a permutation a token takes too long; few of its draws repeat
                rows = torch.randint(0, history, (tokens, selected), device=torch_device)
            else:
                each = [torch.randperm(history, device=torch_device)[:selected] for _ in range(tokens)]
                rows = torch.stack(each)
            return (rows + copy * history).to(torch.int32)

        slots = [draw(copy) for copy in range(copies)]

        def run(copy: int) -> Any:
            window_slots = base.window_slots[copy]
            if not kernels:
                return base.refer([cache.read(row) for row in slots[copy]], copy)
            if not selected:
                return swa_attention(base.q, base.sinks, base.window, window_slots)
            return sparse_attention(base.q, base.sinks, base.window, window_slots, cache, slots[copy])

        def check() -> str | None:
            return base.compare(self.name, run(0), lambda token: cache.read(slots[0][token]))

        return TorchCase(run, check if kernels else lambda: None, copies, self.footprint_bytes(point))


class HcaDecode(LaunchedOperation):
    """All C128 entries of every sequence."""

    name = "hca_attention"
    about = "HCA attention of a decode batch over all C128 entries"
    kernel = "v4kernels.hca_attention"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return decode_points(self.name, model_name, axes) if model(model_name).hca_ratio else []

    def twin(self, point: Point) -> Point:
        return point.with_sizes(batch=1, context=1024, mix="equal")

    def work(self, point: Point) -> Work:
        visible, width = [c // HCA_RATIO for c in contexts_of(point)], point["width"]
        pairs = width * (sum(visible) + WINDOW * len(visible))
        entries = sum(visible) + (WINDOW + width - 1) * len(visible)
        tokens = width * len(visible)
        return attention_work(model(point.model).heads, pairs, tokens, entries * ENTRY_BYTES["fp8_584"])

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).read_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        contexts, width = contexts_of(point), point["width"]
        visible = [(c - width + j + 1) // HCA_RATIO for c in contexts for j in range(width)]
        requests = [r for r in range(len(contexts)) for _ in range(width)]
        lengths = [c // HCA_RATIO + 1 for c in contexts]
        return _hca_case(
            point, visible, requests, lengths, torch_device, copies, kernels, self.footprint_bytes(point)
        )


class HcaPrefill(LaunchedOperation):
    """A chunk of new tokens over all entries of its past."""

    name = "hca_prefill"
    about = "HCA attention of a prefill chunk"
    kernel = "v4kernels.hca_attention"
    group = "prefill"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        return chunk_points(self.name, model_name, axes) if model(model_name).hca_ratio else []

    def twin(self, point: Point) -> Point:
        return point.with_sizes(new=min(point["new"], 16), past=1024)

    def work(self, point: Point) -> Work:
        new, past = point["new"], point["past"]
        pairs = entries_seen(new, past, HCA_RATIO) + new * WINDOW
        entries = (past + new) // HCA_RATIO + WINDOW + new - 1
        return attention_work(model(point.model).heads, pairs, new, entries * ENTRY_BYTES["fp8_584"])

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        new, past = point["new"], point["past"]
        visible = [(past + i + 1) // HCA_RATIO for i in range(new)]
        return _hca_case(
            point,
            visible,
            [0] * new,
            [(past + new) // HCA_RATIO + 1],
            torch_device,
            copies,
            kernels,
            self.footprint_bytes(point),
        )


class _Attention:
    """Queries, sinks and windows that every case needs, and the comparison."""

    def __init__(self, name: str, tokens: int, copies: int, device: str) -> None:
        import torch

        from v4kernels import layouts

        shape, pages = model(name), min(tokens * copies, _WINDOW_PAGES)
        fmt = layouts.entry_format(shape.window_format)
        self.q = torch.randn(tokens, shape.heads, HEAD_DIM, device=device).to(torch.bfloat16)
        self.sinks = torch.randn(shape.heads, device=device)
        data = filled_cache(fmt, pages, WINDOW_PAGE_ENTRIES, device)
        self.window = layouts.PagedCache(data, fmt, WINDOW_PAGE_ENTRIES)
        self.window_slots = []  # of each copy
        for copy in range(copies):
            page = (torch.arange(tokens, device=device) + copy * tokens) % pages
            slots = page[:, None] * WINDOW_PAGE_ENTRIES + torch.arange(WINDOW, device=device)
            self.window_slots.append(slots.to(torch.int32))

    def refer(self, entries: list[Any], copy: int) -> Any:
        """The reference over all tokens."""
        import torch

        from v4kernels.reference.attention import attention

        windows = [self.window.read(row) for row in self.window_slots[copy]]
        return attention(self.q, self.sinks, [torch.cat(pair) for pair in zip(windows, entries, strict=True)])

    def compare(self, name: str, got: Any, entries_of: Any) -> str | None:
        """Some tokens of `got`, of the first copy, against the reference on their own entries."""
        import torch

        from v4kernels import numeric
        from v4kernels.reference.attention import attention

        taken = sample(3, self.q.shape[0])
        slots = self.window_slots[0]
        lists = [torch.cat([self.window.read(slots[t]), entries_of(t)]).cpu() for t in taken]
        want, bound = attention(self.q[taken], self.sinks, lists, numeric.bf16_roundoff(got.device))
        return worst(name, numeric.deviation(got[taken], want, bound))


def _hca_case(
    point: Point,
    visible: list[int],
    requests: list[int],
    lengths: list[int],
    device: str,
    copies: int,
    kernels: bool,
    copy_bytes: int,
) -> TorchCase:
    import torch

    from v4kernels import layouts
    from v4kernels.hca_attention import hca_attention

    base = _Attention(point.model, len(visible), copies, device)
    tables, pages = scattered_tables(lengths, C128_PAGE_ENTRIES, copies, device)
    cache = layouts.PagedCache(
        filled_cache(layouts.FP8_584, pages, C128_PAGE_ENTRIES, device), layouts.FP8_584, C128_PAGE_ENTRIES
    )
    request = torch.tensor(requests, dtype=torch.int32, device=device)
    seen = torch.tensor(visible, dtype=torch.int32, device=device)
    longest = max(*visible, 1)

    def entries_of(token: int, copy: int = 0) -> Any:
        logical = torch.arange(visible[token], device=device)
        return cache.read(layouts.slots_of(tables[copy][requests[token]], C128_PAGE_ENTRIES, logical))

    def run(copy: int) -> Any:
        if not kernels:
            return base.refer([entries_of(t, copy) for t in range(len(visible))], copy)
        return hca_attention(
            base.q, base.sinks, base.window, base.window_slots[copy], cache, tables[copy], request, seen,
            max_visible=longest,
        )  # fmt: skip

    def check() -> str | None:
        return base.compare(point.operation, run(0), entries_of)

    return TorchCase(run, check if kernels else lambda: None, copies, copy_bytes)

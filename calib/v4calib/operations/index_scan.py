"""The index scan, for a decode batch and for a prefill chunk on a long past.

Decode: batch x context x verify width; the tokens of a verify step share one read of the keys. Prefill: a
chunk in groups of eight consecutive tokens, as the launcher takes it. Counts are the kernel's own
(`v4kernels.index_scan.work`): key bytes once a group, 2 x heads x 128 FLOPs and two FP32 instructions a
head for each (query, key). Keys: FP8 (132 bytes); where the GPU has an FP4 matrix unit also MXFP4 (68), which
is all that V4.1 has. A decode context has an entry every `decode_ratio` tokens; a chunk is in the units of
the profile's tables, an entry every four tokens, for every model.
"""

from __future__ import annotations

import math
from typing import Any

from v4calib.device import DeviceFacts
from v4calib.grid import Grid, Point, chunk_points, contexts_of, decode_points, entries_seen
from v4calib.operations.base import LaunchedOperation, TorchCase
from v4calib.operations.tensors import filled_cache, sample, scattered_tables, worst
from v4calib.roofline import Work
from v4kernels.shapes import INDEX_DIM, MAX_VERIFY, model
from v4sim.model import spec

TABLE_RATIO = 4  # tokens an entry in the tables of a profile, whatever the model
PAGE_ENTRIES = 64
KEY_BYTES = {"fp8": 132, "fp4": 68}
_DATA_BYTES = {"fp8": 128, "fp4": 64}


def decode_ratio(name: str) -> int:
    """Tokens an entry of the finest family that a decode step scans: 4 in V4, 1 in V4.1."""
    return min(model(name).csa_ratios)


def key_formats(name: str) -> tuple[str, ...]:
    """V4 serves FP8 or FP4 keys, V4.1 FP4 alone."""
    return tuple(spec(name).index_dtypes)


def refuse_keys(dtype: str, facts: DeviceFacts) -> str | None:
    """FP4 keys need a matrix unit for them; a CPU decodes anything."""
    if dtype == "fp4" and facts.kind == "cuda" and facts.arch < 100:
        return f"sm_{facts.arch} has no FP4 matrix unit"
    return None


def queries(tokens: int, heads: int, dtype: str, device: str) -> tuple[Any, Any, Any]:
    """Random index queries: bytes, their scales or None, and head weights with all other scales."""
    import torch

    from v4kernels import quant

    generator = torch.Generator().manual_seed(tokens)
    values = torch.randn(tokens, heads, INDEX_DIM, generator=generator)
    weights = torch.randn(tokens, heads, generator=generator)
    if dtype == "fp4":
        q, scale = quant.to_mxfp4(values)
        return q.to(device), scale.to(device), weights.to(device)
    q, scale = quant.to_e4m3(values, INDEX_DIM)
    return q.to(device), None, (weights * quant.ue8m0_value(scale)[..., 0]).to(device)


def scan_bound(heads: int, dtype: str, device: str) -> float:
    """What a logit may be off by, as a share of its magnitude."""
    import torch

    from v4kernels import numeric

    hopper = device != "cpu" and dtype == "fp8" and torch.cuda.get_device_capability()[0] < 10
    u = numeric.U_FP8_HOPPER if hopper else numeric.U_FP32
    return numeric.accumulation_factor(INDEX_DIM, u) + numeric.accumulation_factor(heads + 2, numeric.U_FP32)


def scan_work(entries: int, pairs: int, tokens: int, heads: int, dtype: str) -> Work:
    """Counts for keys read once, and `pairs` (query, key)."""
    return Work(
        read_bytes=entries * KEY_BYTES[dtype] + tokens * heads * (_DATA_BYTES[dtype] + 4),
        write_bytes=4 * pairs,
        matrix_flops=2 * pairs * heads * INDEX_DIM,
        fp32_ops=pairs * (2 * heads + (1 if dtype == "fp8" else 0)),
    )


class IndexScan(LaunchedOperation):
    """Decode batches."""

    name = "index_scan"
    about = "CSA index logits of a decode batch"
    kernel = "v4kernels.index_scan"

    def points(self, model_name: str, axes: Grid) -> list[Point]:
        formats = key_formats(model_name)[: 1 if axes.name == "cpu" else None]
        return [
            Point(p.operation, p.model, (*p.sizes, ("dtype", dtype)), p.held_out)
            for p in decode_points(self.name, model_name, axes)
            for dtype in formats
        ]

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        return refuse_keys(point.word("dtype"), facts) or super().refuse(point, facts)

    def matrix_format(self, point: Point) -> str:
        return point.word("dtype")

    def configuration(self, point: Point) -> str:
        return f"{point.model} {point.word('dtype')} width {point['width']}"

    def twin(self, point: Point) -> Point:
        return point.with_sizes(batch=1, context=1024, mix="equal")

    def work(self, point: Point) -> Work:
        entries = sum(c // decode_ratio(point.model) for c in contexts_of(point))
        width = point["width"]
        heads = model(point.model).index_heads
        return scan_work(entries, entries * width, point["batch"] * width, heads, point.word("dtype"))

    def footprint_bytes(self, point: Point) -> int:
        work = self.work(point)
        return work.hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        width, ratio = point["width"], decode_ratio(point.model)
        contexts = contexts_of(point)
        groups = [width] * len(contexts)
        visible = [max((c - width + j + 1) // ratio, 1) for c in contexts for j in range(width)]
        requests = list(range(len(contexts)))
        lengths = [c // ratio + 1 for c in contexts]
        return _scan_case(
            point.model,
            point.word("dtype"),
            groups,
            requests,
            visible,
            lengths,
            torch_device,
            copies,
            kernels,
            self.footprint_bytes(point),
        )


class IndexScanPrefill(LaunchedOperation):
    """A chunk of new tokens on a past."""

    name = "index_scan_prefill"
    about = "CSA index logits of a prefill chunk"
    kernel = "v4kernels.index_scan"
    group = "prefill"

    def points(self, model: str, axes: Grid) -> list[Point]:
        return chunk_points(self.name, model, axes)

    def refuse(self, point: Point, facts: DeviceFacts) -> str | None:
        return refuse_keys(self.matrix_format(point), facts) or super().refuse(point, facts)

    def matrix_format(self, point: Point) -> str:
        return key_formats(point.model)[0]

    def configuration(self, point: Point) -> str:
        return f"{point.model} width {min(point['new'], MAX_VERIFY)}"

    def twin(self, point: Point) -> Point:
        return point.with_sizes(new=min(point["new"], 16), past=1024)

    def work(self, point: Point) -> Work:
        new, past = point["new"], point["past"]
        pairs, heads = entries_seen(new, past, TABLE_RATIO), model(point.model).index_heads
        return scan_work((past + new) // TABLE_RATIO, pairs, new, heads, self.matrix_format(point))

    def footprint_bytes(self, point: Point) -> int:
        return self.work(point).hbm_bytes

    def build(self, point: Point, torch_device: str, copies: int, kernels: bool) -> TorchCase:
        new, past = point["new"], point["past"]
        full, rest = divmod(new, MAX_VERIFY)
        groups = [MAX_VERIFY] * full + ([rest] if rest else [])
        visible = [max((past + i + 1) // TABLE_RATIO, 1) for i in range(new)]
        length = (past + new) // TABLE_RATIO + 1
        return _scan_case(
            point.model,
            self.matrix_format(point),
            groups,
            [0] * len(groups),
            visible,
            [length],
            torch_device,
            copies,
            kernels,
            self.footprint_bytes(point),
        )


def _scan_case(
    name: str,
    dtype: str,
    groups: list[int],
    requests: list[int],
    visible: list[int],
    lengths: list[int],
    device: str,
    copies: int,
    kernels: bool,
    copy_bytes: int,
) -> TorchCase:
    import torch

    from v4kernels import index_scan as kernel
    from v4kernels import layouts, numeric
    from v4kernels.reference import index_scan as reference

    heads, tokens, columns = model(name).index_heads, sum(groups), max(visible)
    fmt = layouts.INDEX_FP4 if dtype == "fp4" else layouts.INDEX_FP8
    q, q_scale, weights = queries(tokens, heads, dtype, device)
    tables, pages = scattered_tables(lengths, PAGE_ENTRIES, copies, device)
    cache = filled_cache(fmt, pages, PAGE_ENTRIES, device)
    seen = torch.tensor(visible, dtype=torch.int32, device=device)
    group_request = torch.tensor(requests, dtype=torch.int32, device=device)
    start = torch.tensor([0, *torch.tensor(groups).cumsum(0).tolist()], dtype=torch.int32, device=device)
    token_request = torch.repeat_interleave(torch.tensor(requests), torch.tensor(groups))
    out = torch.empty(tokens, columns, dtype=torch.float32, device=device)

    def launch(copy: int) -> object:
        return kernel.index_scan(
            q, q_scale, weights, cache, tables[copy], group_request, start, seen,
            fmt=fmt, page_entries=PAGE_ENTRIES, max_visible=columns, tokens_per_group=max(groups), out=out,
        )  # fmt: skip

    def refer(copy: int) -> object:
        return reference.index_scan(
            q, q_scale, weights, cache, tables[copy], token_request, seen,
            fmt=fmt, page_entries=PAGE_ENTRIES, columns=columns,
        )  # fmt: skip

    def check() -> str | None:
        out.fill_(float("nan"))
        launch(0)
        for token in sample(3, tokens):
            problem = sampled(token)
            if problem:
                return problem
        return None

    def sampled(token: int) -> str | None:
        """Some pages of one token's keys, brought to the host with the logits that they gave."""
        many = int(visible[token])
        request = int(token_request[token])
        taken = sample(6, math.ceil(many / PAGE_ENTRIES))
        here = layouts.new_cache(fmt, len(taken), PAGE_ENTRIES)
        here.copy_(cache[tables[0][request][torch.tensor(taken, device=device)].long()])
        entries = min(
            PAGE_ENTRIES * len(taken), many - PAGE_ENTRIES * taken[-1] + PAGE_ENTRIES * (len(taken) - 1)
        )
        want, magnitude = reference.index_scan(
            q[token : token + 1].cpu(), None if q_scale is None else q_scale[token : token + 1].cpu(),
            weights[token : token + 1].cpu(), here, torch.arange(len(taken))[None].int(), torch.zeros(1),
            torch.tensor([entries]), fmt=fmt, page_entries=PAGE_ENTRIES, columns=entries,
        )  # fmt: skip
        at = torch.cat([torch.arange(p * PAGE_ENTRIES, (p + 1) * PAGE_ENTRIES) for p in taken])[:entries]
        got = out[token, at.to(device)].cpu()[None]
        bound = scan_bound(heads, dtype, device)
        return worst("index_scan", numeric.deviation(got, want, magnitude * bound))

    return TorchCase(launch if kernels else refer, check if kernels else lambda: None, copies, copy_bytes)

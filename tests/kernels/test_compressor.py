"""Compressors: entries against fp64, and the law that matters: any way to cut the history gives the
same bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks, layouts, numeric
from v4kernels import compressor as kernel
from v4kernels.reference import compressor as reference
from v4kernels.shapes import HCA_COMPRESSOR, HEAD_DIM, INDEX_COMPRESSOR, CompressorShape

C4 = CompressorShape(HEAD_DIM, 4, overlap=True)
CASES = {
    "c4": (C4, layouts.FP8_584, 64),
    "c4-index-fp8": (INDEX_COMPRESSOR, layouts.INDEX_FP8, 64),
    "c4-index-fp4": (INDEX_COMPRESSOR, layouts.INDEX_FP4, 64),
    "c128": (HCA_COMPRESSOR, layouts.FP8_584, 2),
    "v41-ratio-2": (CompressorShape(HEAD_DIM, 2, overlap=False), layouts.FP4_288, 64),
    "v41-ratio-1": (CompressorShape(HEAD_DIM, 1, overlap=False), layouts.FP4_288, 64),
}
# Largest error of an element format, relative to the value and to the scale of its block: half an ulp, half
# the smallest step. The kernel's fp32 value may fall on the other side of a tie or of a scale step: then it
# is a whole step of the next larger scale, hence the doublings below.
FP8, FP4 = (2**-4, 2**-10), (2**-2, 0.25)
STEPS = {"fp8_584": FP8, "index_fp8": FP8, "index_fp4": FP4, "fp4_288": FP4}
BLOCKS = {"fp8_584": 64, "index_fp8": 128, "index_fp4": 32, "fp4_288": 16}
TOP = {"fp8_584": 448, "index_fp8": 448, "index_fp4": 6, "fp4_288": 6}


class Sequence:
    """Weights, one request's history and a cache; `run` feeds it in chunks."""

    def __init__(self, name, rng, tokens, device, spare=0):
        self.shape, self.fmt, self.page_entries = CASES[name]
        self.device = device
        self.states = torch.randn(tokens, self.shape.state_width, generator=rng) * 2
        self.bias = torch.randn(self.shape.ratio, self.shape.series * self.shape.dim, generator=rng)
        self.norm = 0.5 + torch.rand(self.shape.dim, generator=rng)
        self.rope = reference.rope_table(tokens + self.shape.ratio, 160000.0)
        pages = max(1, -(-(tokens // self.shape.ratio) // self.page_entries))
        self.table = (torch.randperm(pages, generator=rng) + 1).to(torch.int32)[None]
        self.ring = self.shape.window + spare
        self.pages = pages + 1
        self.reset()

    def reset(self):
        data = layouts.new_cache(self.fmt, self.pages, self.page_entries, self.device).zero_()
        self.cache = layouts.PagedCache(data, self.fmt, self.page_entries)
        self.rings = torch.full((2, self.ring, self.shape.state_width), torch.nan, device=self.device)

    def feed(self, begin, end, states=None):
        chunks = kernel.plan(
            [end - begin], [begin], [1], self.shape.ratio, self.table, self.page_entries, self.device
        )
        rows = (self.states if states is None else states)[begin:end].contiguous().to(self.device)
        rest = (t.to(self.device) for t in (self.bias, self.norm, self.rope))
        kernel.compress(rows, self.rings, *rest, chunks, self.cache, self.shape)

    def run(self, cuts):
        for begin, end in pairwise(cuts):
            self.feed(begin, end)
        return self.cache.data.cpu().clone()

    def entries(self):
        count = self.states.shape[0] // self.shape.ratio
        slots = layouts.slots_of(self.table[0], self.page_entries, torch.arange(count))
        return self.cache.read(slots.to(self.device)).cpu()


@pytest.mark.parametrize("name", CASES)
def test_entries_match_fp64(device, rng, name):
    """One chunk; error at most that of the storage format."""
    shape = CASES[name][0]
    seq = Sequence(name, rng, shape.ratio * 3 + min(2, shape.ratio - 1), device)
    seq.run([0, seq.states.shape[0]])
    want = reference.compress(seq.states.double(), seq.bias, seq.norm, seq.rope, shape, 1e-6)
    relative, absolute = STEPS[seq.fmt.name]
    amax = want.abs().unflatten(1, (-1, BLOCKS[seq.fmt.name])).amax(-1, keepdim=True)
    scale = (2 * amax / TOP[seq.fmt.name]).expand(-1, -1, BLOCKS[seq.fmt.name]).flatten(1)
    bound = 2 * relative * want.abs() + 2 * absolute * scale
    if seq.fmt is layouts.FP8_584:
        bound[:, 448:] = 2 * numeric.U_BF16 * want.abs()[:, 448:] + 1e-5
    result = numeric.deviation(seq.entries(), want, bound)
    assert result.ok, result
    assert numeric.similarity_gap(seq.entries(), want) < (2e-3 if relative < 0.1 else 2e-2)


def cuts_of(draw, tokens):
    inner = draw(st.lists(st.integers(1, tokens - 1), max_size=6, unique=True)) if tokens > 1 else []
    return [0, *sorted(inner), tokens]


@settings(max_examples=6, deadline=None)
@given(name=st.sampled_from([n for n in CASES if n != "c128"]), tokens=st.integers(1, 18), data=st.data())
def test_any_chunking_gives_the_same_bytes(name, tokens, data):
    """Resumable at any token: prefill in one chunk, in random chunks, and token by token."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    seq = Sequence(name, torch.Generator().manual_seed(tokens), tokens, device)
    whole = seq.run([0, tokens])
    for cuts in (cuts_of(data.draw, tokens), list(range(tokens + 1))):
        seq.reset()
        assert torch.equal(seq.run(cuts), whole), cuts


def test_c128_resumes_inside_a_group(device, rng):
    """128-token groups cut at 1, 127, 128, 200: the ring carries what the chunk before left."""
    seq = Sequence("c128", rng, 260, device)
    whole = seq.run([0, 260])
    seq.reset()
    assert torch.equal(seq.run([0, 1, 127, 128, 200, 260]), whole)


def test_rejected_verify_tokens_leave_no_trace(device, rng):
    """Four draft tokens, one accepted, then the true ones: with a ring longer than the window the bytes
    are those of a run that never drafted."""
    seq = Sequence("c4", rng, 24, device, spare=8)
    whole = seq.run([0, 24])
    seq.reset()
    wrong = torch.randn(seq.states.shape, generator=rng)
    wrong[:14] = seq.states[:14]
    seq.feed(0, 13)
    seq.feed(13, 17, wrong)
    seq.feed(14, 24)
    assert torch.equal(seq.cache.data.cpu(), whole)


def test_several_requests_in_one_launch(device, rng):
    """Requests of unequal length and position, each with its own ring and pages."""
    shape = C4
    lengths, total = [5, 1, 12], [9, 4, 12]
    histories = [torch.randn(t, shape.state_width, generator=rng) for t in total]
    seq = Sequence("c4", rng, 12, device)
    table = torch.arange(1, 4, dtype=torch.int32)[:, None]
    cache = layouts.PagedCache(layouts.new_cache(layouts.FP8_584, 4, 64, device).zero_(), layouts.FP8_584, 64)
    rings = torch.full((3, 8, shape.state_width), torch.nan, device=device)
    rest = [t.to(device) for t in (seq.bias, seq.norm, seq.rope)]
    before = [t - n for t, n in zip(total, lengths, strict=True)]
    for counts, starts in ((before, [0, 0, 0]), (lengths, before)):
        rows = [h[s : s + n] for h, s, n in zip(histories, starts, counts, strict=True)]
        chunks = kernel.plan(counts, starts, [2, 0, 1], 4, table, 64, device)
        kernel.compress(torch.cat(rows).to(device), rings, *rest, chunks, cache, shape)
    for r, history in enumerate(histories):
        want = reference.compress(history.double(), seq.bias, seq.norm, seq.rope, shape, 1e-6)
        got = cache.read(layouts.slots_of(table[r], 64, torch.arange(len(want))).to(device))
        assert numeric.similarity_gap(got, want) < 2e-3


def test_launcher_refuses(device, rng):
    """A ring shorter than the window, a cache of another width."""
    seq = Sequence("c4", rng, 8, device)
    seq.rings = seq.rings[:, :7].contiguous()
    with pytest.raises(checks.KernelInputError, match="ring of 7 tokens"):
        seq.feed(0, 8)
    other = Sequence("c4-index-fp8", rng, 8, device)
    other.shape = C4
    other.states, other.rings = seq.states, torch.zeros(2, 8, C4.state_width, device=device)
    other.bias, other.norm = seq.bias, seq.norm
    with pytest.raises(checks.KernelInputError, match="index_fp8 has 128 channels"):
        other.feed(0, 8)


def test_counts():
    """A C4 state row is 8,192 bytes, a C128 row 4,096; an entry of decode reads 8 or 128 of half or all
    of them."""
    c4 = kernel.work(4, 1, C4, layouts.FP8_584, decode=True)
    assert c4.write_bytes == 584 + 4 * 8192
    assert c4.read_bytes == 8 * 4096 + 4 * 8192
    assert kernel.work(128, 1, HCA_COMPRESSOR, layouts.FP8_584, decode=False).read_bytes == 128 * 4096

"""Number formats and page layouts: exact where they must be, nearest where they cannot, and the
published byte counts.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from v4kernels import layouts, numeric, quant
from v4kernels.shapes import HCA_COMPRESSOR, INDEX_COMPRESSOR, V4_FLASH
from v4kernels.work import DeviceRates, Work

FLOATS = st.floats(2.0**-60, 2.0**60, width=32)


def test_all_e2m1_codes_come_back():
    """Each of the 16 codes decodes to a value that encodes to it."""
    codes = torch.arange(16, dtype=torch.uint8)
    assert torch.equal(quant.e2m1_codes(quant.e2m1_decode(codes)), codes)
    assert torch.equal(quant.unpack_nibbles(quant.pack_nibbles(codes)), codes)


@given(st.floats(-6, 6, width=32))
def test_e2m1_is_the_nearest_value(x):
    """No code is closer; at a tie the even code wins."""
    code = int(quant.e2m1_codes(torch.tensor([x])))
    errors = [abs(abs(x) - v) for v in quant.E2M1_VALUES]
    best = min(errors)
    assert errors[code & 7] == best
    if errors.count(best) > 1:
        assert code % 2 == 0


@given(FLOATS, st.sampled_from([(quant.E4M3, quant.E4M3_MAX), (quant.E2M1, quant.E2M1_MAX)]))
def test_scale_is_the_smallest_that_fits(amax, element):
    """amax fits under the scale and would not under half of it; 448·2^k and 6·2^k themselves fit exactly."""
    fmt, top = element
    scale = float(quant.ue8m0_value(quant.ue8m0_byte(torch.tensor([amax]), fmt)))
    assert amax <= scale * top
    assert amax > scale * top / 2
    exact = quant.ue8m0_byte(torch.tensor([top * 4.0, top * 4.0 + 1.0]), fmt)
    assert exact.tolist() == [129, 130]


def test_zero_blocks_decode_to_zero(rng):
    """A zero block has a legal scale byte, never 0."""
    data, scale = quant.to_mxfp4(torch.zeros(2, 64))
    assert (scale == 1).all()
    assert not quant.from_mxfp4(data, scale).any()
    assert not quant.from_nvfp4(*quant.to_nvfp4(torch.zeros(2, 32))).any()


@pytest.mark.parametrize("fmt", layouts.FORMATS.values(), ids=lambda f: f.name)
def test_stored_values_are_fixed_points(fmt, rng):
    """Decode, encode, decode: nothing moves, so re-writing a cache entry is lossless."""
    x = torch.randn(20, fmt.dim, generator=rng) * torch.logspace(-3, 3, 20)[:, None]
    once = layouts.decode(fmt, *layouts.encode(fmt, x))
    twice = layouts.decode(fmt, *layouts.encode(fmt, once))
    if fmt is not layouts.FP4_288:  # its scale is itself rounded, so amax / 6 need not be the scale again
        assert torch.equal(once, twice)
    assert numeric.similarity_gap(once, x) < (1e-3 if "fp8" in fmt.name else 1.5e-2)


@pytest.mark.parametrize("fmt", layouts.FORMATS.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("entries", [2, 64])
def test_slots_do_not_overlap(fmt, entries, rng):
    """Writing one slot leaves every other slot's bytes alone."""
    cache = layouts.new_cache(fmt, 3, entries).zero_()
    slots = torch.arange(3 * entries)
    x = torch.randn(len(slots), fmt.dim, generator=rng)
    layouts.write(fmt, cache, entries, slots, x)
    before = layouts.read(fmt, cache, entries, slots)
    layouts.write(fmt, cache, entries, slots[entries : entries + 1], -2 * x[:1])
    after = layouts.read(fmt, cache, entries, slots)
    changed = (before != after).any(1)
    assert changed.nonzero().flatten().tolist() == [entries]


def test_published_page_sizes():
    """C4, C128 and window pages padded to 576; index pages unpadded."""
    assert [layouts.FP8_584.page_bytes(n) for n in (64, 2, 256)] == [37_440, 1_728, 149_760]
    assert layouts.INDEX_FP4.page_bytes(64) == 4_352
    assert layouts.INDEX_FP8.page_bytes(64) == 8_448
    entry_bytes = {name: f.entry_bytes for name, f in layouts.FORMATS.items()}
    assert entry_bytes == {"fp8_584": 584, "fp4_288": 288, "fp8_528": 528, "index_fp8": 132, "index_fp4": 68}


def test_published_state_sizes():
    """Bytes of a V4-Flash request: 21 · 8 · 2,560 + 20 · 128 · 1,024 fp32 values."""
    c4 = V4_FLASH.csa_compressor(4)
    csa = c4.window * (c4.state_width + INDEX_COMPRESSOR.state_width)
    hca = HCA_COMPRESSOR.window * HCA_COMPRESSOR.state_width
    assert 4 * (21 * csa + 20 * hca) == 12_206_080


def test_deviation_catches_what_it_must():
    """NaN, a wrong infinity and an excess in one element fail; equal infinities and values inside
    the bound pass.
    """
    inf = float("inf")
    want = torch.tensor([1.0, -inf, 0.0])
    assert numeric.deviation(torch.tensor([1.01, -inf, 0.0]), want, 0.02).ok
    assert not numeric.deviation(torch.tensor([1.03, -inf, 0.0]), want, 0.02).ok
    assert not numeric.deviation(torch.tensor([1.0, inf, 0.0]), want, 0.02).ok
    assert not numeric.deviation(torch.tensor([1.0, -inf, float("nan")]), want, 0.02).ok
    assert not numeric.deviation(torch.tensor([1.0, -inf, 1e-20]), want, torch.zeros(3)).ok
    with pytest.raises(ValueError, match="shapes differ"):
        numeric.deviation(torch.zeros(2), want, 1.0)


def test_roofline_legs():
    """The longest leg bounds the time; work adds up."""
    rates = DeviceRates(hbm_bytes_per_s=1e12, fp32_ops_per_s=1e13, link_bytes_per_s=5e10)
    work = Work(read_bytes=3, write_bytes=1, matrix_flops=8, fp32_ops=5) + Work(read_bytes=10, link_bytes=50)
    legs = work.legs_s(rates, matrix_flops_per_s=1e15)
    assert legs == {"hbm": 14 / 1e12, "matrix": 8 / 1e15, "fp32": 5 / 1e13, "link": 50 / 5e10}

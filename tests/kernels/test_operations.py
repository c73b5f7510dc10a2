"""What a measurer gets: inputs that are valid, launches that are right, counts that match the
kernels' own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from v4kernels import checks, layouts, operations, operations_dense
from v4kernels.shapes import HCA_COMPRESSOR, INDEX_COMPRESSOR, V4_FLASH, V41_FLASH

SMALL = replace(V4_FLASH, hidden=256, expert_dim=256, index_topk=32)


@pytest.mark.parametrize("fmt", layouts.FORMATS.values(), ids=lambda f: f.name)
def test_random_caches_hold_finite_entries(fmt, rng):
    """Every entry decodes to finite numbers of ordinary size, none of them all zero."""
    cache = operations.random_cache(fmt, 3, 64, torch.device("cpu"), rng)
    values = cache.read(torch.arange(192))
    assert torch.isfinite(values).all()
    assert float(values.abs().max()) < 10
    assert (values.abs().amax(1) > 0).all()


@pytest.mark.parametrize("fmt", [layouts.INDEX_FP8, layouts.INDEX_FP4], ids=lambda f: f.name)
@pytest.mark.parametrize("width", [1, 4, 11])
def test_index_scan(device, fmt, width):
    """Decode, verify, and a chunk that is not a whole number of groups."""
    if fmt is layouts.INDEX_FP4 and checks.capability(device) < 100:
        pytest.skip("FP4 keys need sm_100")
    ready = operations.prepare_index_scan(V41_FLASH, fmt, 2, 600, width, device, layers=2)
    assert ready.verify().ok
    assert not torch.equal(ready.run().clone(), ready.run()), "the two layers must differ"
    assert ready.work.matrix_flops == 2 * 2 * width * 150 * 32 * 128


def test_topk(device):
    assert operations.prepare_topk(3, 700, 64, device).verify().ok


@pytest.mark.parametrize("kind", ["sparse", "hca"])
def test_attention(device, kind):
    ready = operations.prepare_attention(SMALL, kind, 2, 512, 2, device, layers=2)
    result = ready.verify()
    assert result.ok, result
    assert ready.run().shape == (4, 64, 512)


@pytest.mark.parametrize(
    ("compressor", "fmt"),
    [
        (V4_FLASH.csa_compressor(4), layouts.FP8_584),
        (INDEX_COMPRESSOR, layouts.INDEX_FP4),
        (HCA_COMPRESSOR, layouts.FP8_584),
    ],
)
@pytest.mark.parametrize("width", [1, 4])
def test_compressor(device, compressor, fmt, width):
    """Decode and a verify step that complete an entry."""
    ready = operations_dense.prepare_compressor(compressor, fmt, 2, width, device, context=256)
    result = ready.verify()
    assert result.ok, result
    assert ready.work.write_bytes == 2 * fmt.entry_bytes + 2 * width * 4 * compressor.state_width


def test_mhc(device):
    assert operations_dense.prepare_mhc(SMALL, 3, device).verify().ok


@pytest.mark.parametrize("activation", ["fp8", "fp4", "bf16"])
def test_moe(device, activation):
    if activation != "bf16" and checks.capability(device) < 100:
        pytest.skip("block scales need sm_100")
    ready = operations_dense.prepare_moe(SMALL, [0, 3, 1], activation, device)
    result = ready.verify()
    assert result.ok, result
    assert torch.isfinite(ready.run()).all()


def test_entry_misses(device):
    ready = operations_dense.prepare_entry_misses(layouts.FP8_584, 300, 70, device)
    assert ready.verify().ok
    assert ready.work.link_bytes == 70 * 584


def test_a_wrong_kernel_is_noticed(device, monkeypatch):
    """`verify` is a check that can fail."""
    ready = operations.prepare_topk(1, 300, 16, device)
    monkeypatch.setattr(
        operations.topk, "topk", lambda logits, lengths, k: torch.arange(k, dtype=torch.int32)[None]
    )
    assert not ready.verify().ok

"""Dense matrices: their parameter counts are the architecture's, and the closures multiply."""

from __future__ import annotations

import pytest
import torch

from v4kernels import lm_head, matrices, projections
from v4kernels.shapes import MODELS, V4_FLASH, V4_PRO, model


@pytest.mark.parametrize(
    ("shape", "attention", "csa", "hca"),
    [(V4_FLASH, 106_954_752, 19_136_512, 4_194_304), (V4_PRO, 299_892_736, 31_391_744, 7_340_032)],
)
def test_parameters(shape, attention, csa, hca):
    """Published per-layer counts of dense attention, CSA and HCA."""
    assert sum(m.parameters for m in matrices.attention_matrices(shape)) == attention
    assert sum(m.parameters for m in matrices.csa_matrices(shape)) == csa
    assert sum(m.parameters for m in matrices.hca_matrices(shape)) == hca


@pytest.mark.parametrize("name", MODELS)
def test_tensor_parallel_slices_add_up(name):
    """q_b, o_a and o_b are divided; q_a and kv are replicated."""
    shape = model(name)
    whole = {m.name: m.parameters for m in matrices.attention_matrices(shape)}
    half = {m.name: m.parameters for m in matrices.attention_matrices(shape, heads=shape.heads // 2)}
    for matrix, parameters in whole.items():
        assert half[matrix] * (1 if matrix in ("q_a", "kv") else 2) == parameters


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_prepare(device, groups, dtype):
    """The closure gives tokens x outputs of finite, non-zero numbers, the same each time."""
    if dtype == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("FP8 products need compute capability 8.9")
    matrix = matrices.Matrix("m", 64, 32, groups)
    run = projections.prepare(matrix, 16, dtype, device, torch.Generator().manual_seed(0))
    out = run()
    assert out.shape == ((16, 32) if groups == 1 else (3, 16, 32))
    assert torch.isfinite(out).all()
    assert 0.5 < float(out.float().std()) < 2.0
    assert torch.equal(out, run())


def test_lm_head_reads_a_gigabyte():
    """2 bytes times 4096 times 129,280 for Flash."""
    work = lm_head.work(V4_FLASH, 1)
    assert work.read_bytes == 2 * 4096 * 129_280 + 2 * 4096
    assert lm_head.matrix(V4_FLASH, 4).outputs == 32_320
    assert work.matrix_flops == 2 * 4096 * 129_280


def test_unknown_model_lists_the_choices():
    with pytest.raises(KeyError, match=r"v4-flash, v4-pro, v4\.1-flash"):
        model("v5")

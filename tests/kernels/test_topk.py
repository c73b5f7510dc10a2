"""Top-k is exact: the same set as a stable sort, for every tie, length and number of spans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels import checks
from v4kernels import topk as kernel
from v4kernels.reference import topk as reference


def as_sets(index):
    """Rows of the result without their padding; padding must come last and only when the row is short."""
    rows = []
    for row in index.tolist():
        kept = [c for c in row if c >= 0]
        assert row[len(kept) :] == [-1] * (len(row) - len(kept))
        rows.append(sorted(kept))
    return rows


def check(logits, lengths, k, device, **options):
    lengths = torch.tensor(lengths, dtype=torch.int32)
    got = kernel.topk(logits.to(device), lengths.to(device), k, **options)
    assert as_sets(got) == reference.topk(logits, lengths, k)


@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize("k", [512, 1024, 2048])
def test_random_logits(device, rng, k, num_splits):
    """Normal scores with ragged rows: empty, shorter than k, exactly k, one more, long."""
    logits = torch.randn(5, 9000, generator=rng)
    check(logits, [0, k - 1, k, k + 1, 9000], k, device, num_splits=num_splits)


@pytest.mark.parametrize("num_splits", [1, 2])
def test_ties_go_to_the_lowest_column(device, rng, num_splits):
    """A handful of distinct values: the k-th value is shared by hundreds of columns."""
    logits = torch.randint(-2, 3, (3, 5000), generator=rng).float()
    logits[1] = 1.5  # one flat row
    logits[2] = logits[2] * 0.0  # both zeros, of either sign
    assert torch.signbit(logits[2]).any()
    check(logits, [5000, 5000, 4999], 512, device, num_splits=num_splits)


def test_more_ties_than_the_pool_holds(device):
    """The threshold bin overflows the pool: the row is read again and the result is still exact."""
    logits = torch.full((1, kernel.POOL + 3000), 0.25)
    logits[0, 7000:7300] = 0.2500001
    logits[0, ::4000] = 3.0
    check(logits, [logits.shape[1]], 512, device, num_splits=2)


def test_order_of_the_whole_float_range(device):
    """Infinities, subnormals, and numbers that differ in the last bit."""
    values = [
        float("inf"),
        3e38,
        1.0000001,
        1.0,
        1e-45,
        0.0,
        -0.0,
        -1e-45,
        -1.0,
        -1.0000001,
        -3e38,
        float("-inf"),
    ]
    logits = torch.tensor([values[::-1]])
    for k in range(1, len(values) + 1):
        check(logits, [len(values)], k, device, block=64)


def test_nothing_after_the_length_is_read(device, rng):
    """NaN and large numbers beyond a row's length change nothing."""
    logits = torch.randn(2, 700, generator=rng)
    clean = kernel.topk(
        logits.to(device), torch.tensor([300, 650], dtype=torch.int32).to(device), 128, block=256
    )
    logits[0, 300:] = torch.nan
    logits[1, 650:] = 1e30
    dirty = kernel.topk(
        logits.to(device), torch.tensor([300, 650], dtype=torch.int32).to(device), 128, block=256
    )
    assert torch.equal(clean, dirty)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 3),
    columns=st.integers(1, 400),
    k=st.integers(1, 80),
    distinct=st.sampled_from([1, 3, 50, 100000]),
    num_splits=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 1000),
)
def test_any_small_shape(rows, columns, k, distinct, num_splits, seed):
    """Shapes, ties and spans at random."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = torch.Generator().manual_seed(seed)
    logits = (torch.randint(0, distinct, (rows, columns), generator=rng) - distinct // 2) / 7.0
    lengths = torch.randint(0, columns + 1, (rows,), generator=rng).tolist()
    check(logits, lengths, k, device, num_splits=num_splits, block=128)


def test_block_maxima_pin_the_newest_block(device, rng):
    """V4.1's pool: best logit of 8 entries, unseen entries left out, the block that is filling always in."""
    logits = torch.randn(3, 100, generator=rng)
    visible = torch.tensor([100, 41, 8], dtype=torch.int32)
    got = kernel.block_maxima(logits.to(device), visible.to(device), 8).cpu()
    for row, want in zip(got.tolist(), reference.block_maxima(logits, visible, 8), strict=True):
        assert row[: len(want)] == want
        assert want[-1] == float("inf")


def test_launcher_refuses(device):
    """k beyond the kernel, strided rows, another dtype."""
    logits, lengths = torch.zeros(2, 8, device=device), torch.zeros(2, dtype=torch.int32, device=device)
    with pytest.raises(checks.KernelInputError, match="k is 4096"):
        kernel.topk(logits, lengths, 4096)
    with pytest.raises(checks.KernelInputError, match="the last must be 1"):
        kernel.topk(logits.T, lengths, 1)
    with pytest.raises(checks.KernelInputError, match="lengths is"):
        kernel.topk(logits, lengths.long(), 1)


def test_counts():
    """Two reads of a million fp32 logits, one write of k indices."""
    work = kernel.work([2**20], 1024)
    assert work.read_bytes == 8 * 2**20
    assert work.write_bytes == 4096

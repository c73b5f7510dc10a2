"""Laws of the generator's building blocks: tables, streams, couplings, phases."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4traces import TraceError
from v4traces.synth import SynthParams
from v4traces.synth.phases import phases, shape
from v4traces.synth.plan import GrowthTable, plan_session
from v4traces.synth.quantiles import Quantiles, Steps, quantiles
from v4traces.synth.streams import Purpose, Streams, Trait, _mix, blend, even
from v4traces.synth.tool_tables import CLASSES_BY_LATENCY, LATENCY_BANDS, SHAPES_BEFORE_TOOL
from v4traces.synth.tools import latencies

GRID = (np.arange(100_000) + 0.5) / 100_000


def distance_from_uniform(numbers: np.ndarray) -> float:
    """Kolmogorov's distance."""
    return float(np.abs(np.sort(numbers) - (np.arange(numbers.size) + 0.5) / numbers.size).max())


# --- Tables.


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=12), st.integers(0, 2**32))
def test_a_sample_has_the_quantiles_and_the_mean_of_its_table(values: list[float], seed: int) -> None:
    inner = np.sort(np.random.default_rng(seed).random(len(values) - 2)) * 0.98 + 0.01
    if np.unique(inner).size < inner.size:
        return
    table = Quantiles((0.0, *inner.tolist(), 1.0), tuple(sorted(values)))
    sample = table.at(GRID)
    for p, v in zip(table.probabilities[1:-1], table.values[1:-1], strict=True):
        assert (sample < v - 1e-9).mean() <= p + 1e-4
        assert (sample <= v + 1e-9).mean() >= p - 1e-4
    assert sample.mean() == pytest.approx(table.mean(), rel=1e-3, abs=1e-3)


def test_a_value_at_two_percentiles_is_an_atom() -> None:
    table = quantiles("p0 0, p40 10, p70 10, p100 20")
    assert (table.at(GRID) == 10.0).mean() == pytest.approx(0.3, abs=1e-4)
    assert table.share_below(10.0) == pytest.approx(0.4)
    assert table.share_below(5.0) == pytest.approx(0.2)
    assert (table.share_below(0.0), table.share_below(21.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p0 1", "at least two"),
        ("p0 1, p50 2", "from probability 0 to 1"),
        ("p0 1, p60 2, p50 3, p100 4", "probabilities rising"),
        ("p0 1, p50 3, p100 2", "not falling"),
        ("p0 nan, p100 2", "not falling"),
        ("p0 1, p100", "not a table"),
        ("p0 1, p100 x", "not a table"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        quantiles(text)


def test_steps_hold_from_their_edge_on() -> None:
    steps = Steps(edges=(10, 60), rates=(1.0, 2.0, 3.0))
    assert steps.at(np.array([9.9, 10.0, 59.9, 60.0, 1e9])).tolist() == [1.0, 2.0, 2.0, 3.0, 3.0]
    assert [steps.one(x) for x in (9.9, 10.0, 60.0)] == [1.0, 2.0, 3.0]
    with pytest.raises(TraceError, match="one per interval"):
        Steps(edges=(10, 60), rates=(1.0, 2.0))


# --- Streams.


def test_the_mixer_is_splitmix64() -> None:
    """The first three outputs of the published generator from state 0."""
    step = 0x9E3779B97F4A7C15
    outputs = [_mix(n * step & (2**64 - 1)) for n in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_streams_are_uniform_and_differ_by_everything_that_names_them() -> None:
    base = Streams(1).uniforms(5, Purpose.GAP, 20_000)
    assert distance_from_uniform(base) < 0.015
    assert abs(np.corrcoef(base[1:], base[:-1])[0, 1]) < 0.03
    for other in (
        Streams(2).uniforms(5, Purpose.GAP, 20_000),
        Streams(1).uniforms(6, Purpose.GAP, 20_000),
        Streams(1).uniforms(5, Purpose.OUTPUT, 20_000),
        Streams(1).uniforms(5, Purpose.GAP, 20_000, child=1),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.03
    assert (Streams(1).uniforms(5, Purpose.GAP, 100) == base[:100]).all()


@pytest.mark.parametrize("trait", list(Trait))
def test_any_64_sessions_cover_a_trait_evenly(trait: Trait) -> None:
    for seed, start in ((1, 0), (7, 1000), (123, 999_000)):
        streams = Streams(seed)
        points = np.array([streams.trait(start + k, trait) for k in range(64)])
        assert distance_from_uniform(points) < 0.06  # random points: 0.1 and more


def test_traits_are_not_correlated_with_each_other() -> None:
    streams = Streams(3)
    points = np.array([[streams.trait(k, trait) for k in range(2000)] for trait in Trait])
    correlation = np.corrcoef(points) - np.eye(len(Trait))
    assert np.abs(correlation).max() < 0.05


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.3, 0.5, 0.8, 1.0])
def test_a_blend_is_uniform_and_as_alike_as_its_weight_says(weight: float) -> None:
    rng = np.random.default_rng(1)
    own, one, other = rng.random((3, 100_000))
    first, second = blend(own, one, weight), blend(own, other, weight)
    assert distance_from_uniform(first) < 0.01
    expected = weight**2 / (weight**2 + (1 - weight) ** 2)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(expected, abs=0.02)


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_even_numbers_keep_their_order_and_fill_every_part(count: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).random(count)
    spread = even(drawn)
    assert (np.argsort(spread) == np.argsort(drawn)).all()
    assert np.floor(np.sort(spread) * count).astype(int).tolist() == list(range(count))


def test_even_numbers_stay_uniform_within_their_part() -> None:
    drawn = np.random.default_rng(2).random((4000, 5))
    places = np.concatenate([even(row) * 5 % 1.0 for row in drawn])
    assert distance_from_uniform(places) < 0.015


# --- Tools and phases.


def test_in_every_band_the_slowest_tool_fits_the_shortest_gap() -> None:
    params = SynthParams()
    assert (LATENCY_BANDS[0], LATENCY_BANDS[-1]) == (0.0, 1.0)
    for low, high in pairwise(LATENCY_BANDS):
        assert params.tool_latency_s.one(high) <= params.tool_gap_s.one(low)


def test_latencies_keep_their_own_distribution() -> None:
    rng = np.random.default_rng(4)
    params = SynthParams()
    ranks = rng.random(200_000)
    drawn = latencies(ranks, rng.random(200_000), params)
    for percent in (25, 50, 75, 90, 96):
        assert np.percentile(drawn, percent) == pytest.approx(
            params.tool_latency_s.one(percent / 100), rel=0.06
        )
    assert np.corrcoef(ranks, np.argsort(np.argsort(drawn)))[0, 1] > 0.5  # slow tools make long gaps


def test_shares_sum_to_one() -> None:
    for band in CLASSES_BY_LATENCY:
        assert sum(share for _, share in band.shares) == pytest.approx(1.0)
    for shares in SHAPES_BEFORE_TOOL:
        assert sum(shares) == pytest.approx(1.0, abs=0.002)
    assert sum(start.share for start in SynthParams().starts) == pytest.approx(1.0)


def test_start_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(TraceError, match="must sum to 1"):
        SynthParams(starts=SynthParams().starts[:2])


@given(
    st.integers(1, 40_000),
    st.booleans(),
    st.floats(0, 0.999),
    st.floats(0, 0.999),
    st.booleans(),
    st.booleans(),
)
def test_phases_cover_the_output_and_none_is_empty(
    output: int, calls_tool: bool, shape_rank: float, split_rank: float, writes: bool, repairs: bool
) -> None:
    parts = shape(output, calls_tool, shape_rank)
    spent = phases(output, parts, split_rank, writes, repairs)
    assert sum(phase.tokens for phase in spent) == output
    assert min(phase.tokens for phase in spent) > 0
    kinds = [phase.kind for phase in spent]
    assert len(set(kinds)) == len(kinds)
    assert ("tool_json" in kinds) == calls_tool
    if repairs and parts[0] != "T":
        assert kinds[0] == "recovery"
    if writes and calls_tool and output > 400:
        assert kinds[-1] == "code"


# --- Plans.


def test_a_session_that_does_not_compact_grows_slowly_enough_to_end_in_its_window() -> None:
    params = SynthParams()
    growth, streams = GrowthTable(params), Streams(1)
    plans = [plan_session(index, params, streams, growth) for index in range(300)]
    tight = [p for p in plans if not p.compacts and p.calls > 80 and p.first_prompt_tokens < 100_000]
    loose = [p for p in plans if p.compacts and p.calls > 80]
    assert len(tight) > 10
    assert len(loose) > 10
    assert np.mean([p.growth for p in tight]) < np.mean([p.growth for p in loose])

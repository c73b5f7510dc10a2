"""Engine totals by time: nothing is lost, and blocks of steps are worth what single steps are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v4sim import config, simulate
from v4sim.capacity import RankPools
from v4sim.cost.base import ConstantCost
from v4sim.metrics.epochs import EpochRecorder, epoch_number, epoch_start
from v4sim.metrics.histogram import LogHistogram, tally
from v4sim.metrics.window import Window
from v4sim.workload import WorkloadOptions
from v4traces import CallRow

S = 1_000_000_000


@pytest.fixture(scope="module")
def recorded(make_trace):
    """Runs of the same busy trace: two replicas of two ranks, with drafts, for about 100 s."""
    rows = [
        CallRow(
            session_id=f"s{i}",
            turn=0,
            prompt_tokens=300 + 700 * (i % 7),
            output_tokens=200 + 400 * (i % 5),
            arrival_s=round(1.7 * i, 3),
        )
        for i in range(40)
    ]
    table = make_trace(rows)
    deployment = config.load(
        "4xB200 V4-Flash DPA4+EP4 sglang",
        sets=[
            "parallel.attention_dp=2",
            "parallel.ep=2",
            "parallel.replicas=2",
            "speculation.kind=mtp",
            "speculation.draft_tokens=2",
            "engine.spec_blocks_mixed_dp=false",
        ],
    )

    def run(stepwise: bool):
        recorder = EpochRecorder(2, 2)
        result = simulate.run(
            table,
            deployment,
            ConstantCost(0.03, 0.001, 0.0001),
            WorkloadOptions(arrivals="trace"),
            pools=RankPools(1 << 20, 1 << 20, 64, 0, (), 1 << 20),
            stepwise=stepwise,
            probes=[recorder],
        )
        return result, recorder

    return run(False), run(True)


def as_numbers(totals):
    histograms = (*totals.steps.durations.values(), totals.itl_burst, totals.itl_divided)
    return (
        [parts.tolist() for parts in totals.steps.parts_ns.values()],
        totals.steps.counts,
        [(h.count, h.total_ns, h.min, h.max, h.counts.tolist()) for h in histograms],
        totals.busy_ns.tolist(),
        totals.mixed_tokens,
    )


def test_all_epochs_together_are_what_the_engine_counted(recorded):
    (result, recorder), _ = recorded
    totals = recorder.everything()
    assert totals.steps.counts == result.steps.counts
    assert totals.steps.counts["mixed"] > 0
    for kind, parts in result.steps.parts_ns.items():
        assert totals.steps.parts_ns[kind].tolist() == parts.tolist()
        mine, theirs = totals.steps.durations[kind], result.steps.durations[kind]
        assert (mine.count, mine.counts.tolist()) == (theirs.count, theirs.counts.tolist())
    for mine, theirs in ((totals.itl_burst, result.itl_burst), (totals.itl_divided, result.itl_divided)):
        assert (mine.count, mine.total_ns, mine.min, mine.max) == (
            theirs.count,
            theirs.total_ns,
            theirs.min,
            theirs.max,
        )
    assert totals.busy_ns.ravel().tolist() == [rank.busy_ns for rank in result.ranks]
    assert (totals.start_ns, totals.end_ns) == (0, result.end_ns)


@pytest.mark.parametrize("window", [(0, 10), (10, 50), (33, 34), (60, 200), (20, 20)])
def test_blocks_and_single_steps_give_the_same_epochs(recorded, window):
    (_, blocks), (_, singles) = recorded
    span = Window(window[0] * S, window[1] * S, "")
    assert as_numbers(blocks.over(span)) == as_numbers(singles.over(span))


def test_adjoining_windows_share_out_every_step(recorded):
    (result, recorder), _ = recorded
    cuts = [0, 7, 31, 64, result.end_ns / S + 60]
    parts = [recorder.over(Window(round(a * S), round(b * S), "")) for a, b in pairwise(cuts)]
    assert sum(part.steps.total_ns for part in parts) == result.steps.total_ns
    assert sum(part.itl_burst.total_ns for part in parts) == result.itl_burst.total_ns
    assert [part.end_ns for part in parts[:-1]] == [part.start_ns for part in parts[1:]]


def test_a_window_covers_about_its_own_time(recorded):
    (_, recorder), _ = recorded
    totals = recorder.over(Window(20 * S, 60 * S, ""))
    assert totals.start_ns == pytest.approx(20 * S, rel=0.04)
    assert totals.end_ns == pytest.approx(60 * S, rel=0.04)


@given(st.integers(0, 10**16))
def test_epochs_tile_time_and_grow_with_it(at_ns):
    number = epoch_number(at_ns)
    assert epoch_start(number) <= at_ns < epoch_start(number + 1)
    assert epoch_start(number + 1) - epoch_start(number) <= max(1 << 30, epoch_start(number) // 16)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 10**12), max_size=8),
            st.one_of(st.sampled_from([0, 1, 1, 3]), st.lists(st.integers(0, 4), min_size=8, max_size=8)),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_tally_counts_every_value_as_often_as_its_weight_says(groups):
    weighted, each = [], []
    for values, weight in groups:
        of_value = [weight] * len(values) if isinstance(weight, int) else weight[: len(values)]
        given_as = weight if isinstance(weight, int) else np.array(of_value, dtype=np.int64)
        weighted.append((np.array(values, dtype=np.int64), given_as))
        each += [value for value, times in zip(values, of_value, strict=True) for _ in range(times)]
    one_by_one = LogHistogram()
    for value in each:
        one_by_one.add(np.array([value]))
    found = LogHistogram()
    found.absorb(tally(weighted))
    assert found.counts.tolist() == (one_by_one.flush() or one_by_one.counts).tolist()
    assert (found.total_ns, found.min, found.max) == (sum(each), min(each, default=0), max(each, default=0))


@given(st.lists(st.lists(st.integers(0, 10**12), max_size=20), max_size=6))
def test_stored_histograms_add_up_exactly(groups):
    total, direct = LogHistogram(), LogHistogram()
    for group in groups:
        values = np.array(group, dtype=np.int64)
        piece = LogHistogram()
        for histogram in (piece, direct):
            if len(values):
                histogram.add(values, values % 3 + 1)
        total.absorb(piece.used())
    assert total.counts.tolist() == (direct.flush() or direct.counts).tolist()
    assert (total.count, total.total_ns, total.min, total.max) == (
        direct.count,
        direct.total_ns,
        direct.min,
        direct.max,
    )

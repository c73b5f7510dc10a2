"""The generator against the published statistics of 692 real sessions, by the definitions of their source.

Targets are column "M" of the shared fact sheet on traces (kv-cache-tester, 692 Claude Code sessions), tool
latency from TraceLab. "Suffix" and per-call hits leave out the first call of a session, the token-weighted
hit counts it. The trace goes through the file, so everything here has passed the laws of a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from v4traces import TRIGGERS, TraceMetadata, TraceTable, TraceWriter, check_trace, read_table
from v4traces.bounds import previous_in_session
from v4traces.stats import trace_stats
from v4traces.synth import SynthParams, generate
from v4traces.synth.command import SAMPLE_PATH

SESSIONS = 692  # as many as were measured: quantiles of fewer sessions scatter more than the tolerance
SEED = 8
TOOL, USER, SUBAGENT = (TRIGGERS.index(name) for name in ("tool_result", "user", "subagent"))


def read(folder: Path, seed: int, sessions: int, params: SynthParams | None = None) -> TraceTable:
    path = folder / "synth.parquet"
    with TraceWriter(path, TraceMetadata("synth", "synthetic")) as writer:
        writer.append(generate(params, seed, sessions))
    return read_table(path)


class View:
    """Columns of the main sessions; sub-agents are counted apart, as in the source."""

    def __init__(self, table: TraceTable) -> None:
        self.table = table
        agents = np.unique(table.session[table.trigger == SUBAGENT])
        self.main = ~np.isin(table.session, agents)
        self.first = table.is_first_of_session() & self.main
        self.later = ~table.is_first_of_session() & self.main
        self.own_hit = np.where(table.parent >= 0, table.shared_tokens, 0)
        self.suffix = table.prompt_tokens - self.own_hit
        self.hit_share = self.own_hit / table.prompt_tokens

    def calls_per_session(self) -> NDArray[np.int64]:
        return np.bincount(np.unique(self.table.session[self.main], return_inverse=True)[1])

    def gap(self, trigger: int) -> NDArray[np.float64]:
        return self.table.delay_s[self.later & (self.table.trigger == trigger)]

    def share(self, trigger: int) -> float:
        return float(np.mean(self.table.trigger[self.main] == trigger))

    def low(self) -> NDArray[np.bool_]:
        return self.later & (self.hit_share < 0.5)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return View(read(tmp_path_factory.mktemp("synth"), SEED, SESSIONS))


MARGINALS: dict[str, tuple[Callable[[View], NDArray[np.float64]], dict[int, float]]] = {
    "calls per session": (View.calls_per_session, {50: 44, 75: 90, 90: 149, 99: 331}),
    "first prompt": (
        lambda v: v.table.prompt_tokens[v.first],
        {5: 13e3, 25: 19e3, 50: 24e3, 75: 106e3, 95: 382e3},
    ),
    "prompt": (lambda v: v.table.prompt_tokens[v.main], {50: 101e3, 75: 135e3, 90: 211e3, 99: 508e3}),
    "uncached suffix": (
        lambda v: v.suffix[v.later],
        {25: 373, 50: 712, 75: 1_700, 90: 4_200, 95: 8_100, 99: 54e3},
    ),
    "output": (
        lambda v: v.table.output_tokens[v.main],
        {10: 104, 25: 138, 50: 217, 75: 429, 90: 894, 95: 1_500, 99: 3_700},
    ),
    "gap before a tool result": (lambda v: v.gap(TOOL), {10: 4, 50: 9, 75: 20, 90: 76, 95: 164, 99: 907}),
    "gap before a user": (
        lambda v: v.gap(USER),
        {10: 16, 50: 122, 75: 390, 90: 1_414, 95: 3_008, 99: 6_558},
    ),
    "hit per call": (
        lambda v: v.hit_share[v.later],
        {1: 0.225, 5: 0.893, 10: 0.951, 25: 0.982, 50: 0.992},
    ),
}


@pytest.mark.parametrize(
    ("name", "percent", "target"),
    [
        (name, percent, target)
        for name, (_, points) in MARGINALS.items()
        for percent, target in points.items()
    ],
)
def test_a_quantile_lies_within_15_percent_of_the_measured_one(
    view: View, name: str, percent: int, target: float
) -> None:
    assert np.percentile(MARGINALS[name][0](view), percent) == pytest.approx(target, rel=0.15)


MEDIANS_AND_P90 = [
    (name, percent, target)
    for name, (_, points) in MARGINALS.items()
    for percent, target in points.items()
    if name != "hit per call" and percent in (50, 90)
]


@pytest.mark.parametrize(("name", "percent", "target"), MEDIANS_AND_P90)
def test_the_bundled_sample_has_the_same_medians_and_p90(name: str, percent: int, target: float) -> None:
    sample = View(read_table(SAMPLE_PATH))
    assert np.percentile(MARGINALS[name][0](sample), percent) == pytest.approx(target, rel=0.15)


MEANS = {
    "calls per session": (lambda v: v.calls_per_session().mean(), 66),
    "suffix": (lambda v: v.suffix[v.later].mean(), 3_100),
    "output": (lambda v: v.table.output_tokens[v.main].mean(), 439),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_lies_within_10_percent_of_the_measured_one(view: View, name: str) -> None:
    measure, target = MEANS[name]
    assert measure(view) == pytest.approx(target, rel=0.10)


def test_first_prompts_are_fresh_or_resumed(view: View) -> None:
    """Half of all sessions start between 10k and 30k tokens, a quarter above 100k, few between."""
    first = view.table.prompt_tokens[view.first]
    assert np.mean((first > 10_000) & (first < 30_000)) == pytest.approx(0.52, abs=0.04)
    assert np.mean(first > 100_000) == pytest.approx(0.28, abs=0.04)
    assert np.mean((first > 30_000) & (first < 55_000)) < 0.08


def test_the_token_weighted_hit_within_own_sessions_is_96_3_percent(view: View) -> None:
    hit = view.own_hit[view.main].sum() / view.table.prompt_tokens[view.main].sum()
    assert hit == pytest.approx(0.963, abs=0.01)


def test_few_calls_hold_half_of_the_uncached_tokens(view: View) -> None:
    low = view.low()
    assert low.sum() / view.later.sum() == pytest.approx(0.019, rel=0.15)
    assert view.suffix[low].sum() / view.suffix[view.later].sum() == pytest.approx(0.486, rel=0.15)


def test_the_top_2_percent_of_calls_hold_half_of_the_uncached_tokens(view: View) -> None:
    """51.0 % in the 485 sessions that are public as files."""
    suffix = np.sort(view.suffix[view.later])[::-1]
    assert suffix[: suffix.size // 50].sum() / suffix.sum() == pytest.approx(0.51, rel=0.15)


@pytest.mark.parametrize(("trigger", "target"), [(TOOL, 0.84), (USER, 0.14)])
def test_the_mix_of_triggers(view: View, trigger: int, target: float) -> None:
    assert view.share(trigger) == pytest.approx(target, abs=0.015)


@pytest.mark.parametrize(
    ("trigger", "beyond", "target"), [(TOOL, 300, 0.033), (USER, 300, 0.30), (USER, 3600, 0.021)]
)
def test_the_share_of_long_gaps(view: View, trigger: int, beyond: float, target: float) -> None:
    assert np.mean(view.gap(trigger) > beyond) == pytest.approx(target, rel=0.15)


def test_compaction_and_divergence_are_as_rare_as_measured(view: View) -> None:
    """By the statistics module, which knows nothing of how the prompts were made."""
    stats = trace_stats(view.table)
    assert stats.compacted_share == pytest.approx(0.0044, rel=0.15)
    assert stats.diverging_share == pytest.approx(0.022, rel=0.15)


def test_a_compaction_follows_a_full_window(view: View) -> None:
    table = view.table
    previous = previous_in_session(table)
    before = table.prompt_tokens[np.maximum(previous, 0)]
    shrinks = view.later & (table.prompt_tokens < 0.5 * before)
    nearly_full = view.later & (before > 140_000) & (before < 170_000)
    assert np.median(before[shrinks]) > 140_000
    assert shrinks[nearly_full].mean() > 10 * shrinks[view.later & ~nearly_full].mean()


def test_conversations_are_rebuilt_after_long_pauses(view: View) -> None:
    """Measured: 0.5 % of calls within ten seconds lose their prefix, half of those after half an hour."""
    by_client = view.later & (view.table.trigger != USER)
    low, gap = view.low(), view.table.delay_s
    assert low[by_client & (gap > 1800)].mean() > 0.35
    assert low[by_client & (gap > 60) & (gap < 600)].mean() < 0.10
    assert low[by_client & (gap < 10)].mean() < 0.02


def test_long_sessions_grow_more_slowly_per_call(view: View) -> None:
    """Measured: rank correlation −0.40 between calls and mean growth of fresh sessions."""
    table = view.table
    before = table.prompt_tokens[np.maximum(previous_in_session(table), 0)]
    appends = view.later & (view.own_hit >= before - 128)
    calls, growth = [], []
    for row in np.flatnonzero(view.first & (table.prompt_tokens < 30_000)):
        mine = appends & (table.session == table.session[row])
        if mine.sum() >= 3:
            calls.append(mine.sum())
            growth.append((table.prompt_tokens - before)[mine].mean())
    ranks = np.array([calls, growth]).argsort(axis=1).argsort(axis=1)
    assert np.corrcoef(ranks)[0, 1] == pytest.approx(-0.40, abs=0.1)


def test_tool_latency_is_a_mixture_with_a_timeout_atom(view: View) -> None:
    latency = view.table.tool_latency_s[view.main & ~np.isnan(view.table.tool_latency_s)]
    for below, share in ((1.0, 0.61), (10.0, 0.88), (60.0, 0.96)):
        assert np.mean(latency < below) == pytest.approx(share, abs=0.015)
    assert np.median(latency) == pytest.approx(0.129, rel=0.15)
    assert latency[latency >= 60].sum() / latency.sum() == pytest.approx(0.85, abs=0.08)
    assert np.mean(latency == 120.0) == pytest.approx(0.01, abs=0.003)
    assert np.mean((latency > 119) & (latency < 121) & (latency != 120.0)) < 0.001


@pytest.mark.parametrize(
    ("tool", "low", "high"), [("read", 0.02, 0.06), ("edit", 0.03, 0.11), ("shell", 0.4, 1.1)]
)
def test_tools_are_as_fast_as_published(view: View, tool: str, low: float, high: float) -> None:
    table = view.table
    mine = table.tool_class == table.tool_class_names.index(tool)
    assert low < np.nanmedian(table.tool_latency_s[mine & view.main]) < high


def test_only_shells_time_out(view: View) -> None:
    table = view.table
    timed_out = table.tool_latency_s == 120.0
    assert set(table.tool_class[timed_out].tolist()) == {table.tool_class_names.index("shell")}


def test_a_gap_holds_the_latency_of_its_tool(view: View) -> None:
    table = view.table
    known = ~np.isnan(table.tool_latency_s)
    assert known.sum() > 30_000
    assert (table.tool_latency_s[known] <= table.delay_s[known]).all()


def test_sub_agents_are_as_common_and_as_long_as_measured(view: View) -> None:
    table = view.table
    roots = np.flatnonzero(table.trigger == SUBAGENT)
    parents = table.session[table.after_rows[table.after_offsets[roots]]]
    assert len(set(parents.tolist())) == pytest.approx(17, abs=3)
    assert roots.size == pytest.approx(63, rel=0.35)
    calls = np.bincount(table.session)[table.session[roots]]
    assert np.median(calls) == pytest.approx(11, abs=2)
    last = [table.prompt_tokens[table.session == session].max() for session in table.session[roots]]
    assert np.median(last) == pytest.approx(72_000, rel=0.3)


def test_no_law_is_broken_and_prefixes_do_not_break_at_one_place(view: View) -> None:
    assert {finding.law for finding in check_trace(view.table)} <= {"delays_of_hours"}


def test_other_seeds_keep_the_joint_facts(tmp_path: Path) -> None:
    other = View(read(tmp_path, 99, 400))
    hit = other.own_hit[other.main].sum() / other.table.prompt_tokens[other.main].sum()
    assert hit == pytest.approx(0.963, abs=0.01)
    assert np.percentile(other.suffix[other.later], 50) == pytest.approx(712, rel=0.15)
    assert np.percentile(other.table.output_tokens[other.main], 90) == pytest.approx(894, rel=0.15)
    assert other.share(TOOL) == pytest.approx(0.84, abs=0.03)

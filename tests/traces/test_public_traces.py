"""The importers on the public traces, against a count of blocks that knows nothing of parents.

The count is that of a cache of blocks that never forgets: hash ids stand for all content up to their
block, so a prompt hits as many blocks as it has leading ids that were seen before.
"""

from __future__ import annotations

import json
import lzma
import tarfile

import numpy as np
import pytest

from v4traces import TRIGGERS, check_trace
from v4traces.bounds import scoped_bound_tokens
from v4traces.importers import importer
from v4traces.importers.base import ImportOptions, import_trace
from v4traces.stats import trace_stats

pytestmark = pytest.mark.shared_data


def _leading_seen(ids, seen):
    found = seen[ids]
    hit = len(ids) if found.all() else int(found.argmin())
    seen[ids] = True
    return hit


def _weka_hits(data):
    """Blocks hit by each call of one file, sub-agents in place; ids are dense numbers of the file."""
    calls = []
    for request in data["requests"]:
        calls += request["requests"] if request["type"] == "subagent" else [request]
    arrays = [np.array(call["hash_ids"], dtype=np.int64) for call in calls]
    seen = np.zeros(max((int(ids.max()) for ids in arrays if ids.size), default=0) + 1, dtype=bool)
    return [(call["in"], _leading_seen(ids, seen)) for call, ids in zip(calls, arrays, strict=True)]


@pytest.fixture(scope="module")
def weka_archive(shared_data):
    return shared_data / "weka" / "sessions.tar.xz"


@pytest.fixture(scope="module")
def weka_table(weka_archive, tmp_path_factory):
    out = tmp_path_factory.mktemp("weka") / "all.parquet"
    return import_trace(importer("weka"), [weka_archive], out, ImportOptions()).table


def test_weka_bounds_agree_with_a_count_of_blocks(weka_archive, weka_table):
    table = weka_table
    hits = []
    with tarfile.open(weka_archive) as archive:
        for member in archive:
            hits += _weka_hits(json.load(archive.extractfile(member)))
    prompts, blocks = np.array(hits).T
    assert table.prompt_tokens.tolist() == prompts.tolist()
    bound = scoped_bound_tokens(table, table.task_of_row())
    # A bound is the count, or up to the rest of one block above it where the parent's last block is shared.
    excess = bound - 64 * blocks
    assert excess.min() >= 0
    assert excess.max() <= table.metadata.prefix_error_tokens == 63
    counted = 64 * blocks.sum() / prompts.sum()
    assert round(counted, 3) == 0.963
    assert abs(trace_stats(table).hit_bounds.own_task - counted) < 0.0005


def test_weka_structure(weka_table):
    table = weka_table
    stats = trace_stats(table)
    assert (stats.calls, stats.tasks, stats.sub_agents) == (32_666, 485, 41)
    assert stats.continuing_sessions == 14
    # 37 of the sub-agents block: each is waited for once, together with others or alone.
    firsts = np.flatnonzero(table.trigger == TRIGGERS.index("subagent"))
    agents = set(table.session[firsts].tolist())
    owner = np.repeat(np.arange(table.n), np.diff(table.after_offsets))
    across = table.session[owner] != table.session[table.after_rows]
    joined = table.session[table.after_rows[across & ~np.isin(owner, firsts)]].tolist()
    assert len(joined) == len(set(joined)) == 37
    assert set(joined) <= agents
    # A sub-agent starts at once when its call ends: its recorded start is within a second of it.
    assert table.delay_s[firsts].max() < 1.1
    assert table.is_first_of_session().sum() == 526
    assert {finding.law for finding in check_trace(table)} == {"cold_prompts_repeat", "delays_of_hours"}


def test_weka_quantiles_are_the_published_ones(weka_table):
    """Medians of 692 sessions, of which these are 485: sizes agree to a few per cent."""
    sizes = trace_stats(weka_table).distributions
    for name, published in (("suffix_tokens", 712), ("output_tokens", 217), ("observed_ttft_s", 2.5)):
        assert abs(sizes[name].quantiles["p50"] / published - 1) < 0.05, name


def test_mooncake_bounds_agree_with_a_count_of_blocks(shared_data, run_import):
    source = shared_data / "mooncake-conversation.jsonl.xz"
    table = run_import("mooncake", source)
    with lzma.open(source) as lines:
        requests = sorted(map(json.loads, lines), key=lambda request: request["timestamp"])
    seen = np.zeros(1 + max(max(request["hash_ids"]) for request in requests), dtype=bool)
    expected = [
        min(512 * _leading_seen(np.array(request["hash_ids"]), seen), request["input_length"])
        for request in requests
    ]
    assert table.n == 12_031
    assert table.bound_tokens().tolist() == expected
    assert round(sum(expected) / table.prompt_tokens.sum(), 3) == 0.374
    assert (np.diff(table.arrival_s) >= 0).all()
    # The first block, of the system prompt, is shared by all.
    assert table.parent[1:].min() >= 0

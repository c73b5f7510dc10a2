"""What is decided about a session before its first call: size, window, habits, common prefix.

Every trait comes from an evenly spread sequence (`Streams.trait`), so that even 64 sessions have the
right mixture of short, long, fresh and resumed ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v4traces.synth.params import SynthParams
from v4traces.synth.streams import Purpose, Streams, Trait, blend
from v4traces.synth.tables import (
    GROUP_COUNT,
    LENGTH_SEEN_BY_CALLS,
    SYSTEM_TOKENS,
    TOOL_SCHEMA_COUNT,
    TOOL_TOKENS,
)

# A prompt holds more than tools and system prompt: at least this much of a user's text.
LEAST_TEXT_TOKENS = 64
# The most of a capped window that a first prompt takes.
_CAPPED_START = 0.6


@dataclass(frozen=True, slots=True)
class Group:
    """Tools and system prompt that many sessions have in common."""

    rank: int
    tokens: int

    @property
    def group_id(self) -> str:
        return f"group-{self.rank:03d}"

    @property
    def system_id(self) -> str:
        return f"system-{self.rank:03d}"

    @property
    def tool_schema_id(self) -> str:
        return f"tools-{self.rank % TOOL_SCHEMA_COUNT:02d}"


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One session before its calls."""

    index: int
    calls: int
    first_prompt_tokens: int
    first_trigger: str
    window_tokens: int
    user_share: float
    group: Group
    group_tokens: int  # of this session's first prompt; a very short one holds less than the group
    growth: float  # rank of this session's growth, in [0, 1)
    compacts: bool  # whether a full window is compacted; the session ends otherwise

    @property
    def session_id(self) -> str:
        return f"s{self.index:06d}"

    @property
    def environment_id(self) -> str:
        return f"repo-{self.group.rank:03d}"


class GrowthTable:
    """Mean tokens that a call of a session with a given growth rank adds to the prompt."""

    def __init__(self, params: SynthParams) -> None:
        cells = (np.arange(256) + 0.5) / 256
        self._ranks = np.linspace(0.0, 1.0, 65)
        extra = [params.tool_extra.at(blend(own, cells, params.extra_likeness)).mean() for own in self._ranks]
        self._tokens = np.array(extra) + params.output.mean()

    def rank_that_fits(self, tokens_per_call: float) -> float:
        """The highest rank whose mean growth is at most `tokens_per_call`."""
        return float(np.interp(tokens_per_call, self._tokens, self._ranks))


def plan_session(index: int, params: SynthParams, streams: Streams, growth: GrowthTable) -> SessionPlan:
    """Decide the traits of session `index`."""
    place = streams.trait(index, Trait.START)
    for start in params.starts:
        if place < start.share or start is params.starts[-1]:
            break
        place -= start.share
    within = min(place / start.share, 1.0)
    calls = max(1, round(start.calls.one(streams.trait(index, Trait.CALLS))))
    first = round(start.first_prompt.one(within))
    long = streams.trait(index, Trait.WINDOW) < start.long_window_share
    long = long or first > params.compaction_limit * params.window_tokens
    window = params.window(long)
    compacts = streams.trait(index, Trait.COMPACTS) < start.compacting_share
    if window < params.uncapped_window(long):
        # Under a cap a client compacts: sessions keep their length, and a resumed one has room to go on.
        compacts = True
        first = min(first, int(_CAPPED_START * window))
    group = _group(index, streams)
    length_rank = LENGTH_SEEN_BY_CALLS.share_below(calls)
    own = np.array([streams.trait(index, Trait.EXTRA)])
    rank = float(blend(1.0 - length_rank, own, params.length_slows_growth)[0])
    if not compacts:
        # It ended before its window was full, so it grew no faster than the window allows.
        room = params.compaction_limit * window - first
        rank = min(rank, growth.rank_that_fits(room / calls))
    return SessionPlan(
        index=index,
        calls=calls,
        first_prompt_tokens=first,
        first_trigger=start.trigger,
        window_tokens=window,
        user_share=params.user_share.one(streams.trait(index, Trait.USER_SHARE)),
        group=group,
        group_tokens=min(group.tokens, first - LEAST_TEXT_TOKENS),
        growth=rank,
        compacts=compacts,
    )


def _group(index: int, streams: Streams) -> Group:
    u = streams.trait(index, Trait.GROUP)
    rank = int(GROUP_COUNT * u * u)
    tools, system = streams.uniforms(rank, Purpose.GROUP, 2).tolist()
    return Group(rank, round(TOOL_TOKENS.one(tools)) + round(SYSTEM_TOKENS.one(system)))

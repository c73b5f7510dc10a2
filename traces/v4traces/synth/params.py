"""What a synthetic trace is drawn from: every number the generator uses, in one frozen value.

Defaults are the measured tables (`tables.py`, `tool_tables.py`, where each number has its source).
Scale a trace with `dataclasses.replace`: other tables, a cap on context, another rate of sub-agents.
Left out: how many sessions there are and when they arrive, which are arguments of `generate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4traces.errors import TraceError
from v4traces.synth import tables as t
from v4traces.synth import tool_tables as tools
from v4traces.synth.quantiles import Quantiles, Steps


@dataclass(frozen=True, slots=True)
class StartClass:
    """One way a session starts: how large its first prompt is and how many calls follow."""

    name: str
    share: float
    first_prompt: Quantiles
    calls: Quantiles
    long_window_share: float
    compacting_share: float
    trigger: str


_STARTS = (
    StartClass(
        "fresh", t.FRESH_SHARE, t.FRESH_FIRST, t.FRESH_CALLS, t.FRESH_LONG_WINDOW, t.FRESH_COMPACTING, "user"
    ),
    StartClass(
        "carried",
        t.CARRIED_SHARE,
        t.CARRIED_FIRST,
        t.CARRIED_CALLS,
        t.CARRIED_LONG_WINDOW,
        t.CARRIED_COMPACTING,
        "resume",
    ),
    StartClass(
        "resumed", t.RESUMED_SHARE, t.RESUMED_FIRST, t.RESUMED_CALLS, t.RESUMED_LONG_WINDOW, 0.0, "resume"
    ),
    StartClass("long", t.LONG_SHARE, t.LONG_FIRST, t.LONG_CALLS, 1.0, 0.0, "resume"),
)


@dataclass(frozen=True, slots=True)
class SynthParams:
    """Distributions and rates of a synthetic trace."""

    starts: tuple[StartClass, ...] = _STARTS
    # Context. `context_cap_tokens` lowers the windows below, for models or budgets that end earlier.
    window_tokens: int = 200_000
    long_window_tokens: int = 1_000_000
    context_cap_tokens: int | None = None
    compaction_limit: float = 0.84  # of the window: here the client compacts by itself (p95 of [W])
    max_output_tokens: int = 32_000  # what the client asks for: Claude Code's default; [W] reaches 18k
    # Pace.
    user_share: Quantiles = t.USER_SHARE
    tool_gap_s: Quantiles = t.TOOL_GAP_S
    user_gap_s: Quantiles = t.USER_GAP_S
    # Growth.
    output: Quantiles = t.OUTPUT
    tool_extra: Quantiles = t.TOOL_EXTRA
    user_extra: Quantiles = t.USER_EXTRA
    second_call_extra: Quantiles = t.SECOND_CALL_EXTRA
    output_dropped_share: float = t.OUTPUT_DROPPED_SHARE
    output_kept: Quantiles = t.OUTPUT_KEPT
    tail_changed_share: float = t.TAIL_CHANGED_SHARE
    # How alike the calls of a session are: weights of `streams.blend`, from the share of rank variance
    # between sessions [W] (output 0.14, extra 0.16, gaps 0.13 after tools and 0.32 after users). Those of
    # gaps are cut to 0.06 and 0.01: few sessions hold most of the users' calls, and small traces would swing.
    output_likeness: float = 0.29
    extra_likeness: float = 0.30
    tool_gap_likeness: float = 0.20
    user_gap_likeness: float = 0.10
    # How far a long output means a short addition: rank correlation −0.13 [W], as a weight.
    output_shortens_extra: float = 0.12
    # How much of a session's growth its length explains; same weights.
    length_slows_growth: float = 0.2
    # What is not an append.
    rebuild_by_gap: Steps = t.REBUILD_BY_GAP
    rebuild_by_user: float = t.REBUILD_BY_USER
    rebuild_second_call: Steps = t.REBUILD_SECOND_CALL
    rebuild_ratio: Quantiles = t.REBUILD_RATIO
    rebuild_most_added_tokens: int = t.REBUILD_MOST_ADDED_TOKENS
    second_call_rebuild_ratio: Quantiles = t.SECOND_CALL_REBUILD_RATIO
    rebuild_shared: Quantiles = t.REBUILD_SHARED
    resume_after_s: float = 3600.0  # a rebuild after this gap is a resumed session, not a tool result [A]
    compaction_by_user: Steps = t.COMPACTION_BY_USER
    compaction_by_tool: Steps = t.COMPACTION_BY_TOOL
    compacted_prompt: Quantiles = t.COMPACTED_PROMPT
    compacted_shared: Quantiles = t.COMPACTED_SHARED
    load_by_turn: Steps = t.LOAD_BY_TURN
    load_below_tokens: int = t.LOAD_BELOW_TOKENS
    load_tokens: Quantiles = t.LOAD_TOKENS
    edit_by_user: float = t.EDIT_BY_USER
    edit_by_tool: float = t.EDIT_BY_TOOL
    edit_rewind: Quantiles = t.EDIT_REWIND
    edit_suffix: Quantiles = t.EDIT_SUFFIX
    fork_by_user: float = t.FORK_BY_USER
    fork_by_tool: float = t.FORK_BY_TOOL
    fork_distance: Quantiles = t.FORK_DISTANCE
    fork_suffix: Quantiles = t.FORK_SUFFIX
    # Tools and sub-agents.
    tool_latency_s: Quantiles = tools.TOOL_LATENCY_S
    recovery_share: float = tools.RECOVERY_SHARE
    subagent_session_share: float = tools.SUBAGENT_SESSION_SHARE

    def __post_init__(self) -> None:
        total = sum(start.share for start in self.starts)
        if abs(total - 1.0) > 1e-9:
            raise TraceError(
                f"the shares of the start classes sum to {total:g}; they must sum to 1. Scale them."
            )
        cap = self.context_cap_tokens
        if cap is not None and cap < MIN_CONTEXT_TOKENS:
            raise TraceError(
                f"context_cap_tokens is {cap}; a coding agent's tools and system prompt alone take about"
                f" 15,000 tokens, so it must be at least {MIN_CONTEXT_TOKENS}. Raise it or leave it out."
            )

    def uncapped_window(self, long: bool) -> int:
        """The context limit of a session as measured, in tokens."""
        return self.long_window_tokens if long else self.window_tokens

    def window(self, long: bool) -> int:
        """The context limit of a session, in tokens."""
        window = self.uncapped_window(long)
        return window if self.context_cap_tokens is None else min(window, self.context_cap_tokens)


MIN_CONTEXT_TOKENS = 32_768

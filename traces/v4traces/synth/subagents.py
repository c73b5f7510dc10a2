"""Sub-agents: sessions that a call starts and a later call waits for.

One to three start together after a call of the parent session. A blocking sub-agent is joined by the
parent's next call, a background one by a later call. It has tools and a system prompt of its own, common
to all sub-agents of its kind and no prefix of the parent's. Left out: sub-agents of sub-agents, and
anything but appends (nothing else was measured in them). Units: tokens, seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from v4traces.rows import CallRef, CallRow
from v4traces.synth import tool_tables as t
from v4traces.synth.params import SynthParams
from v4traces.synth.phases import phases, reasoning_tokens, shape
from v4traces.synth.plan import SessionPlan
from v4traces.synth.streams import Purpose, Streams, Trait
from v4traces.synth.tools import classes, latencies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spawn:
    """One sub-agent: which call of the parent starts it and which waits for it (None: none does)."""

    number: int
    kind: str
    after_turn: int
    join_turn: int | None


def plan_spawns(
    plan: SessionPlan, params: SynthParams, streams: Streams, by_user: Sequence[bool]
) -> list[Spawn]:
    """The sub-agents of a session, in order of the calls that start them."""
    rank, share = streams.trait(plan.index, Trait.SUBAGENTS), params.subagent_session_share
    if rank >= share:
        return []
    # A call that starts sub-agents is followed by one that takes their results.
    places = [turn for turn in range(plan.calls - 1) if not by_user[turn + 1]]
    points = min(len(places), max(1, round(t.SPAWN_POINTS.one(rank / share))))
    widest = len(t.SPAWN_WIDTH)
    drawn = iter(streams.uniforms(plan.index, Purpose.SUBAGENT, points * (2 + 3 * widest)).tolist())
    # Early rather than late: the measured median is a quarter into the session.
    chosen = sorted({places[int(len(places) * next(drawn) ** 2)] for _ in range(points)})
    spawns: list[Spawn] = []
    for turn in chosen:
        for _ in range(_choose(t.SPAWN_WIDTH, next(drawn))):
            kind = _choose(t.SUBAGENT_KINDS, next(drawn))
            join = turn + 1
            background, later = next(drawn), next(drawn)
            if background < t.BACKGROUND_SHARE:
                join += 1 + int(later * t.BACKGROUND_JOIN_CALLS)
            spawns.append(Spawn(len(spawns) + 1, kind, turn, join if join < plan.calls else None))
    return spawns


def _choose(cumulative: Sequence[tuple[T, float]], u: float) -> T:
    return next(value for value, edge in cumulative if u < edge)


def subagent_calls(spawn: Spawn, plan: SessionPlan, params: SynthParams, streams: Streams) -> list[CallRow]:
    """The calls of one sub-agent."""

    def drawn(purpose: Purpose, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return streams.uniforms(plan.index, purpose, count, child=spawn.number)

    session = f"{plan.session_id}.a{spawn.number}"
    length, task = drawn(Purpose.EVENT_SIZE, 2).tolist()
    n = max(1, round(t.SUBAGENT_CALLS.one(length)))
    outputs = np.rint(t.SUBAGENT_OUTPUT.at(drawn(Purpose.OUTPUT, n))).astype(np.int64).tolist()
    extras = np.rint(t.SUBAGENT_EXTRA.at(drawn(Purpose.EXTRA, n))).astype(np.int64).tolist()
    gap_ranks = drawn(Purpose.GAP, n)
    gaps = t.SUBAGENT_GAP_S.at(gap_ranks)
    # Sub-agents wait less than a main session, so a latency drawn for the same rank may not fit its gap.
    waits = np.minimum(latencies(gap_ranks, drawn(Purpose.LATENCY, n), params), gaps)
    tools = classes(waits, drawn(Purpose.TOOL, n))
    gap_list, wait_list = np.round(gaps, 3).tolist(), np.round(waits, 3).tolist()
    shapes, splits = drawn(Purpose.SHAPE, n).tolist(), drawn(Purpose.SPLIT, n).tolist()
    prefix = t.SUBAGENT_PREFIX_TOKENS[spawn.kind]
    rows: list[CallRow] = []
    for turn in range(n):
        first, last = turn == 0, turn == n - 1
        if first:
            previous = kept = 0
            prompt = prefix + round(t.SUBAGENT_TASK_TOKENS.one(task))
        else:
            previous, kept = rows[-1].prompt_tokens, rows[-1].output_tokens
            prompt = previous + kept + extras[turn]
        if prompt + outputs[turn] > plan.window_tokens:
            break
        parts = shape(outputs[turn], not last, shapes[turn])
        spent = phases(outputs[turn], parts, splits[turn], writes=False, repairs=False)
        rows.append(
            CallRow(
                session_id=session,
                turn=turn,
                parent_session=None if first else session,
                parent_turn=None if first else turn - 1,
                shared_tokens=previous,
                shared_output_tokens=None if first else kept,
                group_id=f"agent-{spawn.kind}" if first else None,
                group_tokens=prefix if first else None,
                prompt_tokens=prompt,
                output_tokens=outputs[turn],
                max_output_tokens=params.max_output_tokens,
                reasoning_tokens=reasoning_tokens(spent),
                after=(CallRef(plan.session_id, spawn.after_turn),) if first else None,
                delay_s=0.0 if first else gap_list[turn],
                trigger="subagent" if first else "tool_result",
                tool_class=None if first else tools[turn],
                tool_latency_s=None if first else wait_list[turn],
                phases=spent,
                tool_schema_id=f"tools-{spawn.kind}",
                system_id=f"system-{spawn.kind}",
                environment_id=plan.environment_id,
            )
        )
    return rows

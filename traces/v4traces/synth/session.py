"""One session as rows: plan, pace, outputs and history put together, sub-agents in their places.

Rows come in an order in which everything a row names stands before it: a sub-agent's calls follow the
call that starts it. Ids count from the session's number: they carry nothing but identity. A snapshot
changes when an edit has run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v4traces.rows import CallRef, CallRow
from v4traces.synth.history import Evolution, Step, output_ranks, pace
from v4traces.synth.params import SynthParams
from v4traces.synth.phases import phases, reasoning_tokens, shape
from v4traces.synth.plan import GrowthTable, SessionPlan, plan_session
from v4traces.synth.streams import Purpose, Streams
from v4traces.synth.subagents import plan_spawns, subagent_calls
from v4traces.synth.tool_tables import TIMEOUT_S
from v4traces.synth.tools import classes, latencies


def session_calls(
    index: int, params: SynthParams, streams: Streams, growth: GrowthTable, arrival_s: float | None
) -> Iterator[CallRow]:
    """All calls of session `index` and of its sub-agents."""
    plan = plan_session(index, params, streams, growth)
    n = plan.calls
    by_user, gaps, gap_ranks = pace(plan, params, streams)
    evolution = Evolution(plan, params, streams, by_user, gaps, output_ranks(plan, params, streams))
    steps = evolution.run()
    spawns = plan_spawns(plan, params, streams, by_user)
    waits = latencies(np.array(gap_ranks), streams.uniforms(index, Purpose.LATENCY, n), params)
    tools = classes(waits, streams.uniforms(index, Purpose.TOOL, n))
    latency_s = np.round(waits, 3).tolist()
    delay_s = np.round(gaps, 3).tolist()
    shapes = streams.uniforms(index, Purpose.SHAPE, n).tolist()
    splits = streams.uniforms(index, Purpose.SPLIT, n).tolist()
    failures = streams.uniforms(index, Purpose.RECOVERY, n).tolist()

    session_id, environment_id, edits = plan.session_id, plan.environment_id, 0
    tool_schema_id, system_id = plan.group.tool_schema_id, plan.group.system_id
    joins: dict[int, list[CallRef]] = {}
    for turn, step in enumerate(steps):
        output = evolution.outputs[turn]
        trigger = _trigger(plan, turn, step, by_user[turn], gaps[turn], params)
        joined = joins.get(turn)
        ran_tool = trigger == "tool_result" and joined is None
        edits += ran_tool and tools[turn] == "edit"
        failed = ran_tool and (latency_s[turn] == TIMEOUT_S or failures[turn] < params.recovery_share)
        calls_tool = turn + 1 < len(steps) and not by_user[turn + 1]
        parts = shape(output, calls_tool, shapes[turn])
        spent = phases(output, parts, splits[turn], calls_tool and tools[turn + 1] == "edit", failed)
        child = step.parent >= 0
        in_group = turn == 0
        yield CallRow(
            session_id=session_id,
            turn=turn,
            parent_session=session_id if child else None,
            parent_turn=step.parent if child else None,
            shared_tokens=step.shared_tokens,
            shared_output_tokens=step.kept_output,
            group_id=plan.group.group_id if in_group else None,
            group_tokens=plan.group_tokens if in_group else None,
            prompt_tokens=step.prompt_tokens,
            output_tokens=output,
            max_output_tokens=params.max_output_tokens,
            reasoning_tokens=reasoning_tokens(spent),
            arrival_s=arrival_s if turn == 0 else None,
            after=None if joined is None else (CallRef(session_id, turn - 1), *joined),
            delay_s=delay_s[turn] if turn else 0.0,
            trigger=trigger,
            tool_class=tools[turn] if ran_tool else "task" if joined else None,
            tool_latency_s=latency_s[turn] if ran_tool else None,
            phases=spent,
            snapshot_id=f"{session_id}:{edits}",
            tool_schema_id=tool_schema_id,
            system_id=system_id,
            environment_id=environment_id,
        )
        for spawn in spawns:
            if spawn.after_turn == turn:
                rows = subagent_calls(spawn, plan, params, streams)
                yield from rows
                if spawn.join_turn is not None:
                    joins.setdefault(spawn.join_turn, []).append(CallRef(rows[-1].session_id, rows[-1].turn))


def _trigger(
    plan: SessionPlan, turn: int, step: Step, by_user: bool, gap_s: float, params: SynthParams
) -> str:
    if turn == 0:
        return plan.first_trigger
    if by_user:
        return "user"
    # The whole conversation again after a long pause: the client was started anew.
    return "resume" if step.kind == "rebuild" and gap_s >= params.resume_after_s else "tool_result"

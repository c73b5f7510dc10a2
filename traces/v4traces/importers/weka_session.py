"""Reads one recorded session of the WEKA format (kv-cache-tester, AgentX) into plain values.

Units: `t`, `api_time`, `think_time`, `ttft` are seconds, `duration_ms` milliseconds. `hash_ids` cover
full blocks only, floor(in / block). Facts that the reader rests on, from the 485 public sessions:

* A finished sub-agent's marker carries the time of its *end*: `t` - `duration_ms` is within 1.1 s of
  the end of the call that started it. A background one (`async_launched`) has no duration and carries
  the time of its start.
* The calls of a sub-agent count from its start in the raw files and from the session's start in a
  republication; whichever makes the first calls fall nearer to the starts is taken, per session.
* `api_time` is missing in 9 % of calls. `think_time` then counts from the last call that has one, so
  it cannot be used for the call after; the median `api_time` of the session stands in.
* Of those calls the answer is missing too, and the input after them is always given as text, though
  most of it must be tool results (the median pause is 15 s, after known answers it is 169 s).

Left out: everything else, above all agent names, since users choose them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from statistics import median
from typing import Any

from v4traces.errors import TraceError
from v4traces.importers.base import Tally
from v4traces.importers.prefix import BlockIds, Blocks
from v4traces.importers.values import count, seconds

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `began_s` counts from the start of the root session."""

    began_s: float
    ended_s: float  # estimated if `api_s` is None
    api_s: float | None
    think_s: float | None
    ttft_s: float | None
    prompt_tokens: int
    output_tokens: int
    blocks: Blocks
    trigger: str
    is_reply_known: bool  # whether what the call answered was recorded
    model: object
    record: tuple[object, ...]  # all that tells whether two calls are the same event, blocks included


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A session inside a session. `ended_s` is None if it runs in the background."""

    began_s: float
    ended_s: float | None
    session: Session


@dataclass(frozen=True, slots=True)
class Session:
    """The items stand in the order of the file."""

    items: tuple[Call | SubAgent, ...]
    tool_tokens: int  # the prompt starts with tool definitions and system prompt; 0 if not recorded
    system_tokens: int

    def calls(self) -> list[Call]:
        return [item for item in self.items if isinstance(item, Call)]


class SessionReader:
    """Reads the session of one object; block ids are local to it."""

    def __init__(self, where: str, block_tokens: int, tally: Tally) -> None:
        self._where = where
        self._block = block_tokens
        self._tally = tally
        self._ids = BlockIds()
        self._absolute = False

    def read(self, data: Record) -> Session:
        """The session with all its sub-agents. Raises `TraceError`, naming the request."""
        self._absolute = _counts_from_root(_requests(data, self._where), self._where)
        return self._session(data, 0.0, self._where)

    def _session(self, data: Record, start_s: float, where: str) -> Session:
        requests = _requests(data, where)
        offset = 0.0 if self._absolute else start_s
        calls = [request for request in requests if not _is_agent(request)]
        known = [api for call in calls if (api := seconds(call, "api_time", where)) is not None]
        typical = median(known) if known else 0.0
        begins = iter([*(self._time(call, "t", where) for call in calls[1:]), math.inf])
        items: list[Call | SubAgent] = []
        for index, request in enumerate(requests):
            at = f"{where}, request {index}"
            if _is_agent(request):
                items.append(self._sub_agent(request, offset, at))
                continue
            next_began = next(begins)
            if count(request, "in", at):
                items.append(self._call(request, offset, next_began, typical, at))
            else:
                self._tally.add("calls without a prompt, dropped")
        tools, system = (
            count(data, key, where) if data.get(key) else 0 for key in ("tool_tokens", "system_tokens")
        )
        return Session(tuple(items), tools, system)

    def _sub_agent(self, marker: Record, offset: float, at: str) -> SubAgent:
        began, ended = _span(marker, at)
        began = max(offset + began, 0.0)
        return SubAgent(began, None if ended is None else offset + ended, self._session(marker, began, at))

    def _call(self, request: Record, offset: float, next_began: float, typical: float, at: str) -> Call:
        began = self._time(request, "t", at)
        api = self._duration(request, "api_time", at)
        think = self._duration(request, "think_time", at)
        prompt, output = count(request, "in", at), count(request, "out", at)
        inputs = tuple(map(str, request.get("input_types") or ()))
        blocks = self._blocks(request, prompt, at)
        if api is None:
            self._tally.add("calls without api_time, the session's median stands in")
            # An estimated end may not make the next call look as if it overlapped.
            ended = max(min(began + typical, next_began), began)
        else:
            ended = began + api
        if output < 1:
            self._tally.add("calls without output, written as one token")
        content = blake2b(blocks.tobytes(), digest_size=16).digest()
        return Call(
            began_s=offset + began,
            ended_s=offset + ended,
            api_s=api,
            think_s=think,
            ttft_s=self._duration(request, "ttft", at),
            prompt_tokens=prompt,
            output_tokens=max(output, 1),
            blocks=blocks,
            trigger=_trigger(inputs),
            is_reply_known=bool(request.get("stop") or request.get("output_types")),
            model=request.get("model"),
            record=(began, prompt, output, api, think, inputs, content),
        )

    def _blocks(self, request: Record, prompt: int, at: str) -> Blocks:
        ids = request.get("hash_ids")
        if not isinstance(ids, list):
            raise TraceError(
                f"{at}: `hash_ids` must be a list, one id for each full block of {self._block} tokens."
            )
        blocks = self._ids.blocks(ids, at)
        full = prompt // self._block
        # 1.5 % of the calls of all public files break the rule by a block: cut or believed, and counted.
        if blocks.size > full:
            self._tally.add("calls with more hash ids than full blocks, cut")
        elif blocks.size < full:
            self._tally.add("calls with fewer hash ids than full blocks")
        return blocks[:full]

    def _time(self, request: Record, key: str, at: str) -> float:
        value = self._duration(request, key, at)
        if value is None:
            raise TraceError(f"{at}: `{key}` is missing; every request needs its time in seconds.")
        return value

    def _duration(self, request: Record, key: str, at: str) -> float | None:
        value = seconds(request, key, at)
        if value is not None and value < 0:
            self._tally.add(f"negative {key}, taken as 0")
            return 0.0
        return value


def _is_agent(request: Record) -> bool:
    return request.get("type") == "subagent"


def _requests(data: Record, where: str) -> list[Record]:
    requests = data.get("requests")
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise TraceError(f"{where}: `requests` must be a list of objects, one for each call.")
    return requests


def _span(marker: Record, at: str) -> tuple[float, float | None]:
    """When a sub-agent began and, if it blocks, when it ended, in the times of its marker."""
    seen = seconds(marker, "t", at)
    if seen is None:
        raise TraceError(f"{at}: `t` is missing; every sub-agent needs its time in seconds.")
    duration_ms = seconds(marker, "duration_ms", at)
    if duration_ms is None or marker.get("status") == "async_launched":
        return seen, None
    return seen - duration_ms / 1e3, seen


def _trigger(inputs: Iterable[str]) -> str:
    """What arrived. Assistant content among the new input means an edited or resumed history."""
    if "tool_use" in inputs or "thinking" in inputs:
        return "resume"
    return "tool_result" if "tool_result" in inputs else "user"


def _counts_from_root(requests: list[Record], where: str) -> bool:
    """Whether sub-agents' calls count from the start of the root session rather than their own."""
    from_own, from_root = 0.0, 0.0
    for request in requests:
        inner = request.get("requests")
        if _is_agent(request) and isinstance(inner, list) and inner and isinstance(inner[0], dict):
            first = seconds(inner[0], "t", where) or 0.0
            from_own += abs(first)
            from_root += abs(first - _span(request, where)[0])
    return from_root < from_own

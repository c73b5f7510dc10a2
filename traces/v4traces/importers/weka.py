"""WEKA sessions (kv-cache-tester, AgentX): one JSON object per session, with block hashes.

Hash ids are local to a session, so the only sharing between sessions that the data can show is

* tool definitions and system prompt of the same two lengths: the roots form a group. Equal lengths
  are evidence, not proof: of 27 pairs of sub-agents inside one file that can be tested, 1 differs;
* a resumed session, whose file repeats the first calls of another one to the hundredth of a second:
  each repeated call gets the original as its parent, with the whole prompt shared.

A shared length is whole blocks. Where all full blocks of the parent are shared and the prompt is at
least as long, the rest of the parent's last block is taken as shared too, and then as much of the
parent's output as fits: a session that only appends. Sub-agents become sessions of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from v4traces.errors import TraceError
from v4traces.importers.base import ImportOptions, Tally
from v4traces.importers.prefix import PrefixFinder
from v4traces.importers.values import json_values
from v4traces.importers.waits import OpenCalls, Wait
from v4traces.importers.weka_session import Call, Session, SessionReader, SubAgent
from v4traces.rows import CallRef, CallRow, TraceMetadata
from v4traces.scrub import Scrubber
from v4traces.sources import Document

BLOCK_TOKENS = 64
# A single equal call could be chance; all resumed sessions of the public set repeat 14 or more.
_LEAST_REPEATED = 2
# After an answer that was not recorded, a pause up to this is a tool's, a longer one a person's: nine
# in ten recorded tool pauses are below 67 s, three in four of people's are above 55 s.
_LONGEST_TOOL_PAUSE_S = 60.0

_SESSIONS = "sessions"
_DUPLICATES = "sessions that repeat an earlier one exactly, dropped"
_RESUMED = "sessions that resume an earlier one, linked to it"
_REPEATED = "calls repeated by resumed sessions"
_SUB_AGENTS = "sub-agents"
_BACKGROUND = "sub-agents in the background, not waited for"


class WekaImporter:
    """Keeps the records of all sessions so far, to find duplicates and resumed sessions."""

    def __init__(self, options: ImportOptions, scrub: Scrubber, tally: Tally) -> None:
        self._limit = options.limit
        self._scrub = scrub
        self._tally = tally
        self._known: dict[tuple[object, ...], list[_Known]] = {}
        self._seen: set[bytes] = set()
        self.metadata = TraceMetadata(
            source_format="weka",
            trace_class="hash_exact",
            block_tokens=BLOCK_TOKENS,
            prefix_error_tokens=BLOCK_TOKENS - 1,
            tokenizer="source",
            notes=(
                "no absolute times: sessions have no arrival_s",
                "groups are by equal lengths, not by hash",
            ),
        )

    def rows(self, sources: Iterable[Document]) -> Iterator[CallRow]:
        taken = 0
        for document in sources:
            for where, data in _sessions(document):
                if self._limit is not None and taken >= self._limit:
                    return
                rows = self._session(where, data)
                taken += bool(rows)
                yield from rows

    def _session(self, where: str, data: dict[str, Any]) -> list[CallRow]:
        block = data.get("block_size", BLOCK_TOKENS)
        if block != BLOCK_TOKENS:
            raise TraceError(
                f"{where}: `block_size` is {block!r}; this importer reads blocks of {BLOCK_TOKENS}."
            )
        session = SessionReader(where, BLOCK_TOKENS, self._tally).read(data)
        digest = _digest(session)
        if digest in self._seen:
            self._tally.add(_DUPLICATES)
            return []
        self._seen.add(digest)
        root = _Writer(self._scrub, self._tally)
        original = self._resumed(session)
        name = self._scrub.identity("session", digest)
        root.write(session, name, original)
        self._tally.add(_SESSIONS if root.rows else "sessions without calls, dropped")
        if root.rows:
            self._remember(session, name, original)
        return root.rows

    def _resumed(self, session: Session) -> list[CallRef]:
        """The originals of the first calls, if an earlier session has the same ones."""
        records = [call.record for call in session.calls()]
        best: list[CallRef] = []
        for known in self._known.get(records[0], ()) if records else ():
            same = 0
            for mine, theirs in zip(records, known.records, strict=False):
                if mine != theirs:
                    break
                same += 1
            if same >= _LEAST_REPEATED and same > len(best):
                best = known.originals[:same]
        if best:
            self._tally.add(_RESUMED)
            self._tally.add(_REPEATED, len(best))
        return best

    def _remember(self, session: Session, name: str, originals: list[CallRef]) -> None:
        records = [call.record for call in session.calls()]
        own = [CallRef(name, turn) for turn in range(len(records))]
        known = _Known(records, originals + own[len(originals) :])
        self._known.setdefault(records[0], []).append(known)


class _Known(NamedTuple):
    """A session already read: what was recorded of its calls, and where each one first occurred."""

    records: list[tuple[object, ...]]
    originals: list[CallRef]


class _Begun(NamedTuple):
    ref: CallRef
    call: Call


class _Writer:
    """Turns one root session with its sub-agents into rows."""

    def __init__(self, scrub: Scrubber, tally: Tally) -> None:
        self._scrub = scrub
        self._tally = tally
        self._finder = PrefixFinder()
        self._calls: list[Call] = []
        self._models: dict[object, str | None] = {}
        self.rows: list[CallRow] = []

    def write(
        self, session: Session, name: str, originals: list[CallRef], spawn: Wait | None = None
    ) -> _Begun | None:
        """Append the session's rows. The last call of it is returned: what a join waits for."""
        waiting = OpenCalls()
        begun: list[_Begun] = []
        for item in session.items:
            if isinstance(item, SubAgent):
                self._sub_agent(item, f"{name}/{len(self.rows)}", begun, waiting)
                continue
            turn = len(begun)
            first = turn == 0
            wait = spawn if spawn is not None and first else waiting.wait(item.began_s)
            usual = () if first else (begun[-1].ref,)
            in_line = wait.calls == usual
            delay_s = _delay(item, wait, begun[-1].call if in_line and begun else None)
            row = CallRow(
                session_id=name,
                turn=turn,
                prompt_tokens=item.prompt_tokens,
                output_tokens=item.output_tokens,
                after=None if in_line else wait.calls,
                delay_s=delay_s,
                trigger=_trigger(item, begun, delay_s, spawn is not None),
                observed_ttft_s=item.ttft_s,
                observed_e2e_s=item.api_s,
                model=self._model(item.model),
                **self._prefix(item, originals[turn : turn + 1], session if first else None),
            )
            self.rows.append(row)
            self._calls.append(item)
            begun.append(_Begun(CallRef(name, turn), item))
            waiting.add(begun[-1].ref, item.ended_s)
        return begun[-1] if begun else None

    def _sub_agent(self, agent: SubAgent, key: str, begun: list[_Begun], waiting: OpenCalls) -> None:
        """It starts after the last call that had begun by then. If it blocks, it is to be waited for."""
        earlier = [one for one in begun if one.call.began_s <= agent.began_s] or begun[:1]
        spawn = Wait((earlier[-1].ref,), earlier[-1].call.ended_s) if earlier else Wait((), 0.0)
        end = self.write(agent.session, self._scrub.identity("subagent", key), [], spawn)
        if end is None:
            return
        self._tally.add(_SUB_AGENTS)
        if agent.ended_s is None:
            self._tally.add(_BACKGROUND)
        else:
            # The last call's own times are rounded; it cannot have ended after the sub-agent did.
            waiting.add(end.ref, min(end.call.ended_s, agent.ended_s))

    def _prefix(self, call: Call, original: list[CallRef], root: Session | None) -> dict[str, Any]:
        """The columns that say what earlier content the prompt starts with."""
        match = self._finder.add(call.blocks, len(self._calls))
        if original:
            return {
                "parent_session": original[0].session_id,
                "parent_turn": original[0].turn,
                "shared_tokens": call.prompt_tokens,
            }
        if match.call < 0:
            if root is None or not root.tool_tokens + root.system_tokens:
                return {}
            group = self._scrub.identity("group", root.tool_tokens, root.system_tokens)
            return {
                "group_id": group,
                "group_tokens": min(root.tool_tokens + root.system_tokens, call.prompt_tokens),
            }
        parent, row = self._calls[match.call], self.rows[match.call]
        shared, follows = match.num_blocks * BLOCK_TOKENS, None
        if match.num_blocks == parent.blocks.size and call.prompt_tokens >= parent.prompt_tokens:
            shared = parent.prompt_tokens
            follows = min(parent.output_tokens, call.prompt_tokens - shared) or None
        return {
            "parent_session": row.session_id,
            "parent_turn": row.turn,
            "shared_tokens": shared,
            "shared_output_tokens": follows,
        }

    def _model(self, name: object) -> str | None:
        if name not in self._models:
            self._models[name] = self._scrub.model(name)
        return self._models[name]


def _trigger(call: Call, begun: list[_Begun], delay_s: float, is_agent: bool) -> str:
    if not begun:
        return "subagent" if is_agent else call.trigger
    if call.trigger == "user" and not begun[-1].call.is_reply_known and delay_s <= _LONGEST_TOOL_PAUSE_S:
        return "tool_result"
    return call.trigger


def _delay(call: Call, wait: Wait, previous: Call | None) -> float:
    """Seconds of tools and client. The recorded pause, if it counts from the call waited for."""
    if previous is not None and previous.api_s is not None and call.think_s is not None:
        return call.think_s
    # Microseconds: differences of decimal seconds would otherwise end in noise.
    return round(max(call.began_s - wait.ended_s, 0.0), 6)


def _digest(session: Session) -> bytes:
    """Tells two sessions apart by everything recorded but their names."""
    hashed = blake2b(digest_size=16)
    for item in session.items:
        if isinstance(item, SubAgent):
            hashed.update(repr((item.began_s, item.ended_s)).encode() + _digest(item.session))
        else:
            hashed.update(repr(item.record).encode())
    return hashed.digest()


def _sessions(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """The session objects of a document: one object, a list of them, or one a line."""
    for where, value in json_values(document):
        entries = value if isinstance(value, list) else [value]
        for index, entry in enumerate(entries):
            at = f"{where}, entry {index}" if isinstance(value, list) else where
            if not isinstance(entry, dict) or "requests" not in entry:
                raise TraceError(f"{at} is no WEKA session: it has no `requests`. Is it another format?")
            yield at, entry

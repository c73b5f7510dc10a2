"""Mooncake traces: one request a line, block hashes shared by the whole trace.

Units: `timestamp` and `delay` are in milliseconds; blocks are 512 tokens and hash ids cover the last,
partial one too: ceil(input_length / 512). In the plain format every request is a root session with
an absolute arrival. Timestamps come in buckets (of 12,031 conversation requests 10,851 share
theirs), so the order within one is that of the file. Extended files may have `session_id` (lines with
the same one are turns, in order), `delay` (from ready to sent), `request_id` and `wait_for` (what
must be done first; by default the turn before). The parent is the earliest request with the longest
shared prefix, whoever sent it.

Left out: what follows the shared blocks. A partial block says nothing about a longer prompt, so no
output of the parent is assumed to return, and shared lengths are short by up to a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from v4traces.errors import TraceError
from v4traces.importers.base import ImportOptions, Tally
from v4traces.importers.prefix import BlockIds, Blocks, PrefixFinder
from v4traces.importers.values import count, json_values, seconds
from v4traces.rows import CallRef, CallRow, TraceMetadata
from v4traces.scrub import Scrubber
from v4traces.sources import Document

BLOCK_TOKENS = 512
_KEYS = ("input_length", "output_length", "hash_ids")


class _Request(NamedTuple):
    ref: CallRef
    arrival_s: float | None
    delay_s: float
    after: tuple[CallRef, ...] | None
    at_s: float  # arrival, or at the earliest by the delays: the order in which content appears
    prompt_tokens: int
    output_tokens: int
    blocks: Blocks


class MooncakeImporter:
    """Reads all requests, then finds prefixes in order of arrival."""

    def __init__(self, options: ImportOptions, scrub: Scrubber, tally: Tally) -> None:
        self._limit = options.limit
        self._scrub = scrub
        self._tally = tally
        self._ids = BlockIds()
        self._turns: dict[str, list[_Request]] = {}
        self._by_id: dict[object, _Request] = {}
        self.metadata = TraceMetadata(
            source_format="mooncake",
            trace_class="hash_exact",
            block_tokens=BLOCK_TOKENS,
            prefix_error_tokens=BLOCK_TOKENS - 1,
            tokenizer="source",
        )

    def rows(self, sources: Iterable[Document]) -> Iterator[CallRow]:
        requests = self._requests(sources)
        self._tally.add("requests", len(requests))
        self._tally.add("sessions", len(self._turns))
        if any(request.arrival_s is not None for request in requests):
            backwards = sum(one.at_s > two.at_s for one, two in pairwise(requests))
            self._tally.add("requests below the time of the one before, sorted", backwards)
            requests.sort(key=lambda request: request.at_s)
        finder = PrefixFinder()
        for index, request in enumerate(requests):
            match = finder.add(request.blocks, index)
            parent = requests[match.call] if match.call >= 0 else None
            shared = 0
            if parent is not None:
                # The last shared block may be the partial one of either prompt.
                shared = min(match.num_blocks * BLOCK_TOKENS, parent.prompt_tokens, request.prompt_tokens)
            yield CallRow(
                session_id=request.ref.session_id,
                turn=request.ref.turn,
                parent_session=None if parent is None else parent.ref.session_id,
                parent_turn=None if parent is None else parent.ref.turn,
                shared_tokens=shared,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                arrival_s=request.arrival_s,
                after=request.after,
                delay_s=request.delay_s,
            )

    def _requests(self, sources: Iterable[Document]) -> list[_Request]:
        requests: list[_Request] = []
        for document in sources:
            for where, value in json_values(document):
                request = self._request(value, where, len(requests))
                full = self._limit is not None and len(self._turns) >= self._limit
                if request is None or (full and request.ref.turn == 0):
                    continue
                self._turns.setdefault(request.ref.session_id, []).append(request)
                if value.get("request_id") is not None:
                    self._by_id[value["request_id"]] = request
                requests.append(request)
        return requests

    def _request(self, value: Any, where: str, number: int) -> _Request | None:
        """The request of one line; none if it has no prompt."""
        missing = [key for key in _KEYS if not isinstance(value, dict) or key not in value]
        if missing:
            raise TraceError(
                f"{where} is no mooncake request: it has no `{missing[0]}`."
                f" Each line needs timestamp, {', '.join(_KEYS)}."
            )
        prompt, output = count(value, "input_length", where), count(value, "output_length", where)
        blocks = self._blocks(value["hash_ids"], prompt, where)
        if not prompt:
            self._tally.add("requests without a prompt, dropped")
            return None
        if not output:
            self._tally.add("requests without output, written as one token")
        given = value.get("session_id")
        name = (
            self._scrub.identity("request", number)
            if given is None
            else self._scrub.identity("session", given)
        )
        turns = self._turns.get(name, [])
        waits = self._waits(value, where)
        before = turns[-1:] if waits is None else waits
        arrival = self._milliseconds(value, "timestamp", where)
        if arrival is None and given is None:
            raise TraceError(
                f"{where}: `timestamp` is missing; a request without a session_id needs its time in ms."
            )
        if before:
            # A turn that waits for others is sent when they are done, not at a fixed time.
            arrival = None
        delay = self._milliseconds(value, "delay", where) or 0.0
        return _Request(
            ref=CallRef(name, len(turns)),
            arrival_s=arrival,
            delay_s=delay,
            after=None if waits is None else tuple(request.ref for request in waits),
            at_s=max((request.at_s for request in before), default=arrival or 0.0) + delay,
            prompt_tokens=prompt,
            output_tokens=max(output, 1),
            blocks=blocks,
        )

    def _blocks(self, ids: Any, prompt: int, where: str) -> Blocks:
        if not isinstance(ids, list):
            raise TraceError(
                f"{where}: `hash_ids` must be a list, one id for each block of {BLOCK_TOKENS} tokens."
            )
        expected = -(-prompt // BLOCK_TOKENS)
        if len(ids) != expected:
            raise TraceError(
                f"{where}: {len(ids)} hash ids for an input_length of {prompt}. With blocks of {BLOCK_TOKENS}"
                f" tokens, n ids mean (n - 1) * {BLOCK_TOKENS} < input_length <= n * {BLOCK_TOKENS}:"
                f" {expected} ids are expected. Write one id for each block, the partial one included."
            )
        return self._ids.blocks(ids, where)

    def _waits(self, value: dict[str, Any], where: str) -> list[_Request] | None:
        names = value.get("wait_for")
        if names is None:
            return None
        if not isinstance(names, list) or any(isinstance(name, (list, dict)) for name in names):
            raise TraceError(f"{where}: `wait_for` must be a list of request ids.")
        if any(name not in self._by_id for name in names):
            raise TraceError(
                f"{where}: `wait_for` names a request_id that no line before has. Put awaited requests first."
            )
        return [self._by_id[name] for name in names]

    @staticmethod
    def _milliseconds(value: dict[str, Any], key: str, where: str) -> float | None:
        """A time of the line, in seconds."""
        time_ms = seconds(value, key, where)
        if time_ms is not None and time_ms < 0:
            raise TraceError(f"{where}: `{key}` is {time_ms}; it counts milliseconds from 0 up.")
        return None if time_ms is None else time_ms / 1e3

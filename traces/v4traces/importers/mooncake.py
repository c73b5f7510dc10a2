"""Mooncake traces: one request a line, block hashes shared by the whole trace, no sessions.

Units: `timestamp` is in milliseconds; blocks are 512 tokens and hash ids cover the last, partial one
too: ceil(input_length / 512). Every request is a root session with an absolute arrival. Timestamps
come in buckets (of 12,031 conversation requests 10,851 share theirs), so the order within one is that
of the file. The parent is the earliest request with the longest shared prefix, whoever sent it.

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
from v4traces.rows import CallRow, TraceMetadata
from v4traces.scrub import Scrubber
from v4traces.sources import Document

BLOCK_TOKENS = 512
_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


class _Request(NamedTuple):
    arrival_s: float
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
        self.metadata = TraceMetadata(
            source_format="mooncake",
            trace_class="hash_exact",
            block_tokens=BLOCK_TOKENS,
            prefix_error_tokens=BLOCK_TOKENS - 1,
            tokenizer="source",
            notes=("no sessions in the source: every request is one",),
        )

    def rows(self, sources: Iterable[Document]) -> Iterator[CallRow]:
        requests = self._requests(sources)
        backwards = sum(one.arrival_s > two.arrival_s for one, two in pairwise(requests))
        self._tally.add("timestamps below the one before, sorted", backwards)
        in_order = sorted(requests, key=lambda request: request.arrival_s)
        self._tally.add("requests", len(requests))
        finder = PrefixFinder()
        names = [self._scrub.identity("request", index) for index in range(len(in_order))]
        for index, request in enumerate(in_order):
            match = finder.add(request.blocks, index)
            found = match.call >= 0
            shared = 0
            if found:
                parent = in_order[match.call]
                # The last shared block may be the partial one of either prompt.
                shared = min(match.num_blocks * BLOCK_TOKENS, parent.prompt_tokens, request.prompt_tokens)
            yield CallRow(
                session_id=names[index],
                turn=0,
                parent_session=names[match.call] if found else None,
                parent_turn=0 if found else None,
                shared_tokens=shared,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                arrival_s=request.arrival_s,
            )

    def _requests(self, sources: Iterable[Document]) -> list[_Request]:
        requests: list[_Request] = []
        for document in sources:
            for where, value in json_values(document):
                if self._limit is not None and len(requests) >= self._limit:
                    return requests
                requests += self._request(value, where)
        return requests

    def _request(self, value: Any, where: str) -> list[_Request]:
        """The request of one line; none if it has no prompt."""
        missing = [key for key in _KEYS if not isinstance(value, dict) or key not in value]
        if missing:
            raise TraceError(
                f"{where} is no mooncake request: it has no `{missing[0]}`."
                f" Each line needs {', '.join(_KEYS)}."
            )
        arrival_ms = seconds(value, "timestamp", where)
        if arrival_ms is None or arrival_ms < 0:
            raise TraceError(f"{where}: `timestamp` is {arrival_ms}; it counts milliseconds from 0 up.")
        prompt, output = count(value, "input_length", where), count(value, "output_length", where)
        ids = value["hash_ids"]
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
        if not prompt:
            self._tally.add("requests without a prompt, dropped")
            return []
        if not output:
            self._tally.add("requests without output, written as one token")
        return [_Request(arrival_ms / 1e3, prompt, max(output, 1), self._ids.blocks(ids))]

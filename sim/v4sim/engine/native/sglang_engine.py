"""The installed SGLang as an engine that lets prompts go first, for one rank.

Theirs: every decision (`sglang_loop`). Ours: the sizes of the pools, the contents (tokens named after their
place in the trace's prefix structure) and what each step yields.

Left out: HiCache and storage, LoRA, grammars, PD disaggregation, context and pipeline parallelism, the
prefill delayer. Tried with the SGLang of `config.installed`; another version works if its scheduler still
takes what is asked for here, and is refused in one sentence otherwise.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from v4sim.config.installed import installed_version, unlike_tried
from v4sim.engine.native.base import Batch, Request, Row
from v4sim.engine.native.content import ContentTokens
from v4sim.engine.native.prefill_first import PrefillFirstRules
from v4sim.prefix import PrefixIndex

if TYPE_CHECKING:
    from v4sim.engine.native.sglang_loop import Loop


SCHEDULER = "sglang-native"


@dataclass(frozen=True, slots=True)
class Options:
    """One rank of a deployment, as SGLang's arguments word it."""

    page_tokens: int
    window_tokens: int
    kv_tokens: int
    swa_tokens: int
    context_tokens: int  # longest call, with room for drafts
    max_running: int
    chunk_tokens: int | None
    max_prefill_tokens: int
    conservativeness: float
    clip_max_new_tokens: int
    prefill_max_requests: int | None
    prefill_decode_interval: int
    schedule_policy: str
    retraction_policy: str
    overlap: bool
    mixed_chunk: bool
    prefix_cache: bool
    by_priority: bool
    draft_tokens: int
    bigram_keys: bool  # MTP's


def engines(options: Options, prefixes: PrefixIndex) -> Callable[[], SglangEngine]:
    """What makes a rank's engine. `prefixes` are exact to the token."""
    installed_version(SCHEDULER)
    try:
        from v4sim.engine.native.sglang_loop import Loop

        Loop(options)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise unlike_tried(SCHEDULER, error) from error
    return lambda: SglangEngine(Loop(options), options, prefixes)


def rules(options: Options) -> PrefillFirstRules:
    """What the simulator must know of such an engine beside its decisions."""
    return PrefillFirstRules(
        max_batched_tokens=options.chunk_tokens or options.max_prefill_tokens,
        max_num_seqs=options.max_running,
        draft_tokens=options.draft_tokens,
        late_results=options.overlap,
        mixes=options.mixed_chunk,
        counts_rounds=options.prefill_decode_interval > 0,
    )


@dataclass(slots=True)
class _Known:
    """A request and the names of its tokens."""

    request: Any
    content: ContentTokens
    prompt_tokens: int


class SglangEngine:
    """One scheduler of the installed SGLang with its cache."""

    def __init__(self, loop: Loop, options: Options, prefixes: PrefixIndex) -> None:
        self._loop = loop
        self._prefixes = prefixes
        self._width = 1 + options.draft_tokens
        self._known: dict[str, _Known] = {}
        self.capacity_tokens = options.kv_tokens

    @property
    def used_tokens(self) -> int:
        loop = self._loop
        allocator = loop.token_to_kv_pool_allocator
        free = allocator.full_available_size() + loop.tree_cache.full_evictable_size()
        return self.capacity_tokens - int(free)

    @property
    def used_window_tokens(self) -> int:
        loop = self._loop
        allocator = loop.token_to_kv_pool_allocator
        free = allocator.swa_available_size() + loop.tree_cache.swa_evictable_size()
        return int(allocator.size_swa - free)

    def add(self, request: Request) -> None:
        content = ContentTokens(self._prefixes, request.uid)
        name = _name(request.number)
        prompt = content.names(0, request.prompt_tokens)
        theirs = self._loop.enter(name, prompt, request.max_new_tokens, request.priority)
        self._known[name] = _Known(theirs, content, request.prompt_tokens)

    def schedule(self) -> Batch:
        batch = self._loop.propose()
        if batch is None:
            return Batch([], [])
        decoding = set(batch.decoding_reqs or ())
        return Batch(
            [
                Row(_number(request.rid), int(start), self._width if request in decoding else int(tokens))
                for request, start, tokens in zip(
                    batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True
                )
            ],
            [],
        )

    def decode(self) -> Batch:
        batch = self._loop.decode()
        rows = []
        if batch is not None:
            rows = [
                Row(
                    _number(request.rid),
                    len(request.origin_input_ids) + len(request.output_ids) - 1,
                    self._width,
                )
                for request in batch.reqs
            ]
        return Batch(
            rows,
            [_number(name) for name in self._loop.retracted],
            [_number(name) for name in self._loop.aborted],
        )

    def saw_prefill(self) -> None:
        # Ranks of a group keep one cadence, whoever of them has prompts.
        self._loop._prefill_decode_interval_remaining = self._loop.prefill_decode_interval

    def on_idle(self) -> None:
        # Rounds that run nothing take no time, so a pause is over; SGLang's estimate restarts without calls.
        self._loop._prefill_decode_interval_remaining = 0
        if not self._loop.waiting_queue and self._loop.chunked_req is None:
            self._loop.new_token_ratio_tracker.reset()

    def hand_over(self, yields: Mapping[int, int], ended: frozenset[int]) -> None:
        batch, middle = self._loop.result_queue.popleft()
        extend = batch.forward_mode.is_extend()
        decoding = set(batch.decoding_reqs or ()) if extend else set(batch.reqs)
        for request in batch.reqs:
            if request is middle:
                request.inflight_middle_chunks -= 1
                continue
            number = _number(request.rid)
            count = yields.get(number, 0)
            if request.finished() or request.is_retracted or not (count or request.to_finish):
                continue
            tokens: array[int] = array("q")
            if count:
                known = self._known[request.rid]
                done = known.prompt_tokens + len(request.output_ids)
                tokens = known.content.names(done, done + count)
            if number in ended:
                request.eos_token_ids = {tokens[-1]}
            verified = not extend and self._width > 1
            if self._loop.append(
                request, tokens, computed=verified, prefilled=extend and request not in decoding
            ):
                self._known.pop(request.rid, None)

    def lost_tokens(self, number: int, hit_tokens: int) -> int:
        # Where history alone reaches further, SGLang notes up to where, to leave a window there.
        reach = self._known[_name(number)].request.swa_branching_seqlen or 0
        return max(0, int(reach) - hit_tokens)

    def drop(self, number: int) -> None:
        self._known.pop(_name(number))
        self._loop.give_up(_name(number))


def _name(number: int) -> str:
    return f"{number}."  # SGLang gives up every request whose name begins with what it is told


def _number(name: str) -> int:
    return int(name[:-1])

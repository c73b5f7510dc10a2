"""SGLang's rules for one DP rank: prefill first, admission by estimate, retraction.

After SGLang 0.5.23 (`managers/scheduler.py`, `schedule_policy.py`, `mem_cache/prefill_budget.py`,
`new_token_ratio_tracker.py`), as restated in DECISIONS.md. Modelled: chunked prefill with one chunk
in progress per rank, page-rounded budgets, the new-token-ratio estimate and its decay, the sliding
window's own budget, fcfs and longest-prefix-match order, mixed chunks, the prefill-decode interval,
retraction (fewest generated, then longest prompt) to the end of the queue.

Left out: LoRA, grammar, priority preemption of running requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.engine.base import ENDLESS
from v4sim.engine.call import Call
from v4sim.engine.chunk import Chunk
from v4sim.engine.estimate import Budget, NewTokenRatio
from v4sim.engine.holdings import DECODE_WINDOW_PAGES
from v4sim.engine.late import known_tokens
from v4sim.engine.rank import Rank
from v4sim.engine.sglang_queue import WaitingQueue


@dataclass(slots=True)
class Memory:
    """What the rules remember between steps of one rank."""

    ratio: NewTokenRatio
    queue: WaitingQueue
    pause: int = 0  # rounds left in which no prefill is tried
    quiet_steps: int = ENDLESS  # decode steps for which the last plan stands


@dataclass(frozen=True, slots=True)
class SGLangRules:
    """Options as resolved for one rank (`chunk_tokens` = flag ÷ dp_size; None: no chunking)."""

    page_tokens: int
    window_tokens: int
    chunk_tokens: int | None
    max_prefill_tokens: int
    max_running: int
    conservativeness: float
    clip_max_new_tokens: int
    prefill_max_requests: int | None
    prefill_decode_interval: int
    schedule_policy: str
    retraction_policy: str
    draft_alloc_tokens: int  # max(steps · topk, draft tokens), 0 without speculation
    mixes: bool = False
    decodes_first: bool = False
    late_results: bool = True
    keeps_output: bool = True
    foresees_limits: bool = True
    computes_aborted: bool = True
    hash_lookahead_tokens: int = 0  # EAGLE's keys are bigrams: the last token of a prompt has none

    @property
    def keeps_last_token(self) -> bool:
        return self.draft_alloc_tokens == 0

    @property
    def in_flight_tokens(self) -> int | None:
        return 0 if self.late_results and self.draft_alloc_tokens else None

    @property
    def publishes_late(self) -> bool:
        return self.late_results

    @property
    def reorders(self) -> bool:
        return self.schedule_policy != "fcfs"

    @property
    def plans_always(self) -> bool:
        return self.prefill_decode_interval > 0

    # -- prefill --------------------------------------------------------------------------------

    def memory(self, rank: Rank) -> Memory:
        if rank.memory is None:
            queue = WaitingQueue(self.schedule_policy, self.hash_lookahead_tokens)
            rank.memory = Memory(NewTokenRatio(self.conservativeness), queue)
        memory: Memory = rank.memory
        return memory

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]:
        memory = self.memory(rank)
        memory.quiet_steps = ENDLESS
        if memory.pause > 0:  # on every rank, whatever it has: ranks keep one cadence
            memory.pause -= 1
            memory.quiet_steps = 1
            memory.queue.waited = False
            return []
        if not rank.waiting and not rank.prefilling:
            return []
        queue = self._queue(rank, memory, now_ns, visible_ns)
        budget = Budget(self, rank, memory.ratio.value)
        chunks: list[Chunk] = []
        if rank.prefilling:
            self._continue(rank, rank.prefilling[0], budget, chunks)
        if queue and budget.open:
            self._admit(rank, budget, chunks, now_ns, queue)
        if chunks:
            rank.allocate(sum([chunk.new_tokens for chunk in chunks]), len(chunks))
        memory.queue.waited = bool(rank.waiting) and self._may_enter(rank)
        if memory.queue.waited:
            memory.quiet_steps = min(memory.quiet_steps, 1 + memory.queue.passes_left)
        return chunks

    def _continue(self, rank: Rank, call: Call, budget: Budget, chunks: list[Chunk]) -> None:
        """The chunk in progress goes first; it takes what the budget allows, or is parked."""
        left = call.prefill_left
        take = min(left, self._largest_chunk(rank, call, budget))
        owner = rank.owner
        fits = call.kv_end - call.prefilled + owner.kv_available // self.page_tokens * self.page_tokens
        take = min(take, fits + call.replay_tokens)
        room = int(budget.total())
        if room > 0:
            take = min(take, room)
        elif self.window_tokens:
            take = 0
        if take <= 0 or self._window_is_short(rank, call, take) or not rank.try_extend(call, take):
            budget.open = False
            return
        last = take == left
        chunks.append(Chunk(call, take, call.prefilled - call.replay_tokens, last))
        budget.charge(rank.pages(take), self._promised(call, last))

    def chunks_ahead(self, rank: Rank, chunk: Chunk) -> int:
        call, new, page = chunk.call, chunk.new_tokens, self.page_tokens
        if self.chunk_tokens is None or self.plans_always or call.replay_tokens:
            return 0
        uses_all = rank.pages(new) >= self.chunk_tokens or rank.pages(new) >= self.max_prefill_tokens
        if not uses_all or new % page or (chunk.past_tokens + new) % page:
            return 0
        owner = rank.owner
        if owner.swa_available < (2 * DECODE_WINDOW_PAGES + 1) * page + 2 * new:
            return 0
        # The pages of `chunk` are taken already; each further chunk must pass the estimate as well.
        memory = self.memory(rank)
        room = int(Budget(self, rank, memory.ratio.value).total())
        steps = max(0, min((call.prefill_left - new - 1) // new, room // new))
        return min(steps, memory.queue.passes_left) if memory.queue.waited else steps

    def _queue(self, rank: Rank, memory: Memory, now_ns: int, visible_ns: int) -> list[Call]:
        """Who may be admitted, in order."""
        memory.queue.catch_up(rank.step)
        queue = [call for call in rank.waiting if call.queued_ns <= visible_ns]
        if not queue:
            return queue
        if not self._may_enter(rank):
            rank.block(queue[0], "slots", now_ns)
            return []
        memory.queue.put_in_order(rank, queue, visible_ns)
        return queue

    def _may_enter(self, rank: Rank) -> bool:
        """The queue is looked at: a slot is free, or a chunk goes on in any case."""
        return bool(rank.prefilling) or self._has_slot(rank)

    def _has_slot(self, rank: Rank) -> bool:
        return rank.num_running < self.max_running and rank.owner.slots.free > 0

    def _floor_end(self, past: int, take: int) -> int:
        """A truncated chunk ends on a page boundary."""
        return (past + take) // self.page_tokens * self.page_tokens - past

    def _admit(self, rank: Rank, budget: Budget, chunks: list[Chunk], now_ns: int, queue: list[Call]) -> None:
        owner = rank.owner
        spent = False  # by whom this pass admitted: nobody else is looked at
        for call in queue:
            if self.prefill_max_requests is not None and len(chunks) >= self.prefill_max_requests:
                rank.block(call, "budget", now_ns)
                return
            if not self._has_slot(rank):
                rank.block(call, "slots", now_ns)
                return
            if spent:
                rank.block(call, "kv", now_ns)
                return
            target = call.prefill_target
            hit = owner.look_up(call.uid, target - 1 - self.hash_lookahead_tokens)
            call.held = owner.hold(hit)  # what is held is no longer evictable
            call.branch_tokens = hit.tokens + hit.lost_tokens if hit.lost_tokens else 0
            extend = target - hit.tokens + hit.replay_tokens
            total = extend + self._announced(call) + self.page_tokens
            room = budget.total()
            reason = None
            take = extend
            if total >= room:
                reason = "kv"
                # The estimate relaxes with every step; until the shortfall is gone nothing changes.
                growth = budget.growth_per_step()
                if growth > 0.0:
                    self.memory(rank).quiet_steps = int((total - room) / growth) + 1
            elif self._window_peak(rank, call, extend, budget) >= owner.swa_available:
                reason = "swa"
            else:
                rounded, most = rank.pages(extend), self._largest_chunk(rank, call, budget)
                if chunks and budget.chunk is None and rounded >= budget.input:
                    take = 0
                elif rounded > most:
                    whole_pages = most // self.page_tokens * self.page_tokens
                    take = self._floor_end(hit.tokens - hit.replay_tokens, whole_pages)
                if take <= 0:
                    reason = "budget"
            if reason is None:
                reason = rank.try_admit(call, hit, take, now_ns)
            if reason is not None:
                owner.release(call.held)
                call.held = None
                rank.block(call, reason, now_ns)
                return
            if rank.waiting[0] is call:
                rank.waiting.popleft()
            else:
                rank.waiting.remove(call)
            last = take == extend
            chunks.append(Chunk(call, take, hit.tokens - hit.replay_tokens, last))
            budget.charge(rank.pages(take), self._promised(call, last))
            if not budget.open:
                return
            spent = budget.total() <= 0

    def _announced(self, call: Call) -> int:
        """Output tokens that admission reserves for: what the client asked for, clipped."""
        return min(call.max_new_tokens - call.generated, self.clip_max_new_tokens)

    def _promised(self, call: Call, last: bool) -> int:
        """What an admission takes from the estimate beyond its chunk, whatever was generated already."""
        return self.page_tokens + (min(call.max_new_tokens, self.clip_max_new_tokens) if last else 0)

    def _largest_chunk(self, rank: Rank, call: Call, budget: Budget) -> int:
        """What the budget leaves, cut to a chunk whose windows an otherwise empty pool could hold."""
        page = self.page_tokens
        kept = DECODE_WINDOW_PAGES + (1 if call.held is not None else 0)
        most = max(page, rank.owner.swa.capacity - kept * page)
        return most if budget.chunk is None else min(most, budget.chunk)

    def _window_peak(self, rank: Rank, call: Call, extend: int, budget: Budget) -> int:
        limit = min(extend, self._largest_chunk(rank, call, budget))
        longest = extend + max(0, call.max_new_tokens - call.generated)
        return max(limit - self.window_tokens, 0) + min(longest, self.window_tokens) + self.page_tokens

    def _window_is_short(self, rank: Rank, call: Call, take: int) -> bool:
        """The next chunk waits for windows that others hold; what nobody could give is not waited for."""
        owner, page = rank.owner, self.page_tokens
        own = call.swa_private + (page if call.held is not None else 0)
        need = DECODE_WINDOW_PAGES * page + rank.pages(take) - call.swa_private
        return owner.swa_available < min(need, owner.swa.capacity - own)

    # -- decode ---------------------------------------------------------------------------------

    def decode_alloc_tokens(self, width: int) -> int:
        return 1 if self.draft_alloc_tokens == 0 else 2 * self.draft_alloc_tokens

    def make_decode_room(self, rank: Rank, needed_tokens: int) -> bool:
        grown = needed_tokens - rank.decode_alloc
        owner = rank.owner
        if grown <= 0 or owner.make_kv_room(grown) or not rank.decoding:
            return False
        owner.make_kv_room(owner.kv_available)  # everything that can be evicted is, before anybody goes
        if any(call.foreseen for call in rank.leaving):
            rank.held_back = True
            return False
        order = sorted(
            rank.decoding,
            key=lambda call: (-self._generated(rank, call), call.prompt_tokens),
        )
        if self.retraction_policy == "priority":
            order.sort(key=lambda call: -call.priority)
        lookahead = self.decode_alloc_tokens(1)
        victim = order[-1]
        if len(order) == 1 and not rank.prefilling and not rank.leaving:
            rank.abort(victim, lookahead)
            return True
        known = self._generated(rank, victim)
        rank.retract(victim, lookahead, keep=False, to_front=False)
        victim.generated = known  # the token in flight is dropped and computed again
        memory = self.memory(rank)
        memory.quiet_steps = 1
        generated = sum(self._generated(rank, call) for call in rank.decoding)
        announced = sum(call.max_new_tokens for call in rank.decoding)
        memory.ratio.retracted(generated, len(rank.decoding), announced)
        return True

    def _generated(self, rank: Rank, call: Call) -> int:
        return known_tokens(rank, call, late=self.late_results)

    def hashed_in_flight(self, rank: Rank, call: Call) -> int:
        raise NotImplementedError("SGLang computes a call whose client hung up once more")

    def quiet_steps(self, rank: Rank) -> int:
        return self.memory(rank).quiet_steps

    def after_decode(self, rank: Rank, steps: int) -> None:
        self.memory(rank).ratio.step(steps)

    def after_extend(self, rank: Rank) -> None:
        if self.prefill_decode_interval:
            self.memory(rank).pause = self.prefill_decode_interval

    def on_idle(self, rank: Rank) -> None:
        """Rounds without a step take no time: a pause is over; where nobody is left the estimate restarts."""
        memory = self.memory(rank)
        memory.pause = 0
        if not rank.waiting and not rank.prefilling:
            memory.ratio.reset()

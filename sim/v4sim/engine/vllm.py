"""vLLM V1's rules for one DP rank: one token budget for decodes and prefill chunks together.

After vLLM 0.33 (`v1/core/sched/scheduler.py`, `kv_cache_manager.py`), as restated in DECISIONS.md.
Running calls first, in order of admission; then the queue, head of line, while the budget lasts. A
newcomer enters only if its whole prompt fits the free blocks (`reserve_full_isl`); output is not
reserved for, a shortage preempts whoever would be served last, without priorities the newest call. It
goes back to its place in the queue and computes everything again but for what the cache still has.

Left out: encoder inputs, structured output, LoRA, connectors. Output blocks become hittable when
the call ends, not block by block while it decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from v4sim.cache.legal import Hit
from v4sim.engine.base import ENDLESS
from v4sim.engine.cadence import PrefillCadence
from v4sim.engine.call import FINISHED, Call
from v4sim.engine.chunk import Chunk
from v4sim.engine.hashed import hashed_in_flight, hashed_tokens
from v4sim.engine.late import spent
from v4sim.engine.rank import Rank
from v4sim.engine.verify_cut import Windows


@dataclass(slots=True)
class Memory:
    """What the rules remember between steps of one rank."""

    preempted_step: int = -1  # for this step somebody lost its place, so nobody is admitted in it
    doubtful: bool = False  # the head was refused, but losing part of its prefix could let it in
    quiet_steps: int = ENDLESS
    cadence: PrefillCadence | None = None
    windows: Windows | None = None  # where not all may fit


@dataclass(frozen=True, slots=True)
class VLLMRules:
    """Options as resolved for one rank."""

    page_tokens: int
    max_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int
    reserve_full_isl: bool
    watermark: float
    draft_tokens: int
    drops_last_block: bool = False  # the draft layers cannot use the last matched block
    prefill_interval: int = 1
    shares_cadence: bool = False  # with the other ranks of the replica
    hash_lookahead_tokens: int = 0  # or each block is told apart by the tokens after it that they read
    mixes: bool = True
    decodes_first: bool = True
    late_results: bool = True
    reorders: bool = False
    keeps_output: bool = True
    foresees_limits: bool = True
    computes_aborted: bool = False
    keeps_last_token: bool = False

    @property
    def plans_always(self) -> bool:
        """A step of decodes alone may be too wide for the budget."""
        return self.max_batched_tokens < self.max_num_seqs * (1 + self.draft_tokens)

    @property
    def publishes_late(self) -> bool:
        """Blocks are hashed as soon as they are allocated, but for those whose next token is unknown."""
        return self.late_results and self.hash_lookahead_tokens > 0

    def memory(self, rank: Rank) -> Memory:
        if rank.memory is None:
            interval = self.prefill_interval
            rank.memory = Memory(
                cadence=PrefillCadence(interval, self.shares_cadence) if interval > 1 else None,
                windows=Windows(1 + self.draft_tokens)
                if self.plans_always or self.long_prefill_token_threshold
                else None,
            )
        memory: Memory = rank.memory
        return memory

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]:
        memory = self.memory(rank)
        chunks: list[Chunk] = []
        if rank.waiting or rank.prefilling or self.plans_always:
            chunks = self._fill(rank, memory, now_ns, visible_ns)
        # Free blocks only shrink while nobody leaves, so a head that must fit whole stays blocked. One that
        # needs room for its first chunk alone may get in when its prefix is evicted under it.
        memory.quiet_steps = 1 if memory.preempted_step == rank.step or memory.doubtful else ENDLESS
        if memory.cadence is not None and memory.cadence.holds_back:
            memory.quiet_steps = min(memory.quiet_steps, memory.cadence.quiet_steps(rank))
        memory.preempted_step, memory.doubtful = -1, False
        return chunks

    def _fill(self, rank: Rank, memory: Memory, now_ns: int, visible_ns: int) -> list[Chunk]:
        rows = len(rank.decoding) + (len(spent(rank)) if rank.leaving else 0)
        most, windows = self._longest_chunk(rank, visible_ns), memory.windows
        budget = self.max_batched_tokens - rows * (1 + self.draft_tokens)
        if windows is not None:
            budget = windows.fit(rank, self.max_batched_tokens, most, self.decode_alloc_tokens(1))
        chunks: list[Chunk] = []
        verifying: list[Call] = []
        cadence = memory.cadence
        if cadence is not None:
            cadence.begin(rank, preempted=memory.preempted_step == rank.step)
        held_back = cadence is not None and cadence.holds_back
        for call in self._going_on(rank, windows, held_back):
            if call not in rank.prefilling:
                break  # an older one has preempted it
            take = min(call.prefill_left, most, budget)
            if take <= 0:
                break
            drafts = windows.drafts(call, budget - take) if windows is not None else 0
            ahead = windows.paused.get(call.index, 0) if windows is not None and self.late_results else 0
            while not rank.try_extend(call, take, lookahead=self.draft_tokens + drafts + ahead):
                victim = self._last(rank)
                self._preempt(rank, victim)
                rank.trim_decode_alloc(self.decode_alloc_tokens(1))
                chunks = [chunk for chunk in chunks if chunk.call is not victim]
                if victim is call:
                    break
            if call not in rank.prefilling:
                break
            chunks.append(self._chunk(call, take, drafts))
            self._publish(rank, call, take)
            budget -= take + drafts
            if windows is not None and windows.goes_on(call, drafts):
                verifying.append(call)
        continued = sum([chunk.call not in verifying for chunk in chunks])
        if rank.waiting and memory.preempted_step != rank.step:
            self._admit(rank, chunks, rows, budget, most, now_ns, visible_ns)
        if cadence is not None:
            cadence.end(
                rank,
                prefilled=continued > 0 or any(not chunk.last or chunk.new_tokens > 1 for chunk in chunks),
                queued=any(call.queued_ns <= visible_ns for call in rank.waiting),
                preempted=memory.preempted_step == rank.step,
            )
        return chunks

    def _going_on(self, rank: Rank, windows: Windows | None, held_back: bool) -> list[Call]:
        """Calls that prefill, and paused decodes, which no cadence holds back."""
        if not held_back:
            return list(rank.prefilling)
        return [call for call in rank.prefilling if windows is not None and call.index in windows.paused]

    def _publish(self, rank: Rank, call: Call, take: int) -> None:
        """Blocks can be hit from the moment at which the step that computes them is planned."""
        hashed = call.prefill_target - self.hash_lookahead_tokens
        rank.publish(call, min(call.prefilled + max(0, take - call.replay_tokens), hashed))

    def _longest_chunk(self, rank: Rank, visible_ns: int) -> int:
        """The threshold keeps a long prompt from starving others; one that is alone takes what it can."""
        if self.long_prefill_token_threshold == 0:
            return ENDLESS
        seen = sum(1 for call in rank.waiting if call.queued_ns <= visible_ns)
        return self.long_prefill_token_threshold if rank.num_running + seen > 1 else ENDLESS

    def _chunk(self, call: Call, take: int, drafts: int) -> Chunk:
        call.padded = drafts > 0
        return Chunk(call, take, call.prefilled - call.replay_tokens, take == call.prefill_left, drafts)

    def _admit(
        self,
        rank: Rank,
        chunks: list[Chunk],
        rows: int,
        budget: int,
        most: int,
        now_ns: int,
        visible_ns: int,
    ) -> None:
        owner = rank.owner
        cadence = self.memory(rank).cadence
        continued = bool(chunks)
        while rank.waiting and rank.waiting[0].queued_ns <= visible_ns:
            call = self._head(rank, visible_ns)
            if budget <= 0:
                rank.block(call, "budget", now_ns)
                return
            if rank.num_running >= self.max_num_seqs or owner.slots.free < 1:
                rank.block(call, "slots", now_ns)
                return
            hit = self._match(rank, call)
            extend = call.prefill_target - hit.tokens + hit.replay_tokens
            # Beside decodes alone, a newcomer with one token to compute becomes as wide as they are.
            padding = 0
            if extend == 1 and not continued and (rows or hit.tokens):
                padding = self.draft_tokens
            if padding >= budget:
                self.memory(rank).doubtful = hit.tokens > 0  # with less of a hit there is nothing to pad
                rank.block(call, "budget", now_ns)
                return
            if cadence is not None and cadence.holds_back and extend > 1:
                return
            call.held = owner.hold(hit)
            take = min(extend, most, budget)
            lookahead = self.draft_tokens + padding
            upto = hit.tokens + take - hit.replay_tokens + lookahead
            if self.reserve_full_isl:
                upto = max(upto, call.prefill_target)
            need = rank.pages(upto) - hit.tokens
            kept_free = self._kept_free(rank) if rank.num_running else 0
            reason: str | None = None
            if need + kept_free > owner.kv_available:
                reason = "kv"
            else:
                reason = rank.try_admit(call, hit, take, now_ns, lookahead=lookahead)
            if reason is not None:
                owner.release(call.held)
                call.held = None
                self.memory(rank).doubtful = hit.tokens > 0 and not self.reserve_full_isl
                rank.block(call, reason, now_ns)
                return
            rank.waiting.remove(call)
            if owner.marks is not None:
                call.branch_tokens = hit.tokens + hit.lost_tokens
            call.padded = padding > 0
            chunks.append(Chunk(call, take, hit.tokens - hit.replay_tokens, take == extend, padding))
            self._publish(rank, call, take)
            budget -= take + padding

    def _kept_free(self, rank: Rank) -> int:
        """Whole blocks, in tokens, that newcomers leave free; one more block exists and holds nothing."""
        page = self.page_tokens
        return int(self.watermark * (rank.owner.kv.capacity // page + 1)) * page

    def _match(self, rank: Rank, call: Call) -> Hit:
        """Every token but the last may be taken from the cache."""
        hit = rank.owner.match(call.uid, call.prefill_target - 1)
        if self.drops_last_block and hit.tokens:
            hit = rank.owner.match(call.uid, hit.tokens - self.page_tokens)
        return hit

    def _head(self, rank: Rank, visible_ns: int) -> Call:
        """First come first served among the highest priority that is visible."""
        best = rank.waiting[0]
        for call in rank.waiting:
            if call.queued_ns <= visible_ns:
                above = call.priority - best.priority
                if above > 0 or (above == 0 and call.queued_ns < best.queued_ns):
                    best = call
        return best

    def _last(self, rank: Rank) -> Call:
        """Who would be served last: without priorities the last admitted, be it that it has just ended."""
        return max(
            rank.prefilling + rank.decoding + rank.leaving,
            key=lambda call: (-call.priority, call.queued_ns, call.admission),
        )

    def _preempt(self, rank: Rank, victim: Call) -> None:
        self.memory(rank).preempted_step = rank.step
        if (windows := self.memory(rank).windows) is not None:
            windows.paused.pop(victim.index, None)
        if victim.state == FINISHED:
            rank.drop(victim, self._hashed_tokens(rank, victim))
            return
        rank.retract(
            victim,
            self.decode_alloc_tokens(1),
            keep=True,
            to_front=True,
            content_tokens=self._hashed_tokens(rank, victim),
        )

    def _hashed_tokens(self, rank: Rank, call: Call) -> int:
        return hashed_tokens(rank, call, self.hash_lookahead_tokens, late=self.late_results)

    def hashed_in_flight(self, rank: Rank, call: Call) -> int:
        return hashed_in_flight(rank, call, self.hash_lookahead_tokens, late=self.late_results)

    @property
    def in_flight_tokens(self) -> int | None:
        return 1 + self.draft_tokens if self.late_results and self.draft_tokens else None

    def chunks_ahead(self, rank: Rank, chunk: Chunk) -> int:
        return 0  # a step of vLLM may always take in somebody else as well

    # -- decode ---------------------------------------------------------------------------------

    def decode_alloc_tokens(self, width: int) -> int:
        """The verify window and the lookahead of the drafts after it."""
        return 1 + 2 * self.draft_tokens

    def make_decode_room(self, rank: Rank, needed_tokens: int) -> bool:
        grown = needed_tokens - rank.decode_alloc
        if grown <= 0 or rank.owner.make_kv_room(grown):
            return False
        if rank.num_running == 0:
            return False
        victim = self._last(rank)
        if rank.num_running == 1 and victim.state != FINISHED:
            rank.abort(victim, self.decode_alloc_tokens(1))
        else:
            self._preempt(rank, victim)
        return True

    def quiet_steps(self, rank: Rank) -> int:
        return self.memory(rank).quiet_steps

    def after_decode(self, rank: Rank, steps: int) -> None:
        return

    def after_extend(self, rank: Rank) -> None:
        return

    def on_idle(self, rank: Rank) -> None:
        return

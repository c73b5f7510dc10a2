"""SGLang's own scheduler loop, admission and radix cache, driven step by step on the CPU.

Theirs: what `v4sim.engine.native.sglang_loop` says, asked for a whole choice at a time
(`Scheduler.get_next_batch_to_run`).

Emulated here: the event loop (with overlap one batch ahead), receiving requests, and the processing of
results: append the tokens (drafts accepted as the script says), see whether the answer ends, publish a
prompt whose prefill is complete, release a call that ended. Import `oracle.absent` before this module.
"""

from __future__ import annotations

import logging
from array import array

import sglang
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler

from oracle.log import Entry
from oracle.script import Clock, Script, accepted
from oracle.sglang_scripted import ScriptedLoop
from oracle.tokens import EOS, Texts

VERSION = sglang.__version__


def _name(number: int) -> str:
    """SGLang ends every request whose name begins with the one to be ended."""
    return f"{number:05d}"


class Rank(ScriptedLoop):
    """One scheduler under one script, with clock and texts of all ranks. `entry`: its latest decision."""

    update_running_batch = Scheduler.update_running_batch  # a choice is taken whole, not in halves

    def __init__(self, script: Script, clock: Clock, texts: Texts) -> None:
        self.script, self.clock, self.texts = script, clock, texts
        self.drafts = script.options.get("draft_tokens", 0)
        self.now = 0
        self.entry: Entry | None = None
        self._reqs: dict[int, Req] = {}
        self._emitted: dict[int, int] = {}
        self._inside = set[str]()
        super().__init__(script, lambda: self.now)

    @property
    def has_prompts(self) -> bool:
        return bool(self.chunked_req or self.waiting_queue)

    def enqueue(self, number: int) -> None:
        call = self.script.calls[number]
        req = self.enter(_name(number), array("q", self.texts.prompt(number)), call.limit, call.priority)
        req.eos_token_ids = self.texts.ends
        req.logprob_start_len = -1  # as of a client that asks for none; ranks count by it
        self._reqs[number] = req

    def hang_up(self, number: int) -> None:
        self.give_up(_name(number))
        if self._reqs[number] not in self.collect_inflight_reqs():
            self._inside.discard(_name(number))

    def choose(self, now: int) -> ScheduleBatch | None:
        self.retracted, self.entry, self.now = [], None, now
        plan = self.get_next_batch_to_run(running_batch=self.running_batch, last_batch=self.last_batch)
        self.running_batch = plan.running_batch
        batch, out = plan.batch_to_run, [int(name) for name in self.retracted]
        if batch is None:
            if out:
                self.entry = [now, [], self.free(), [], out]
            return None
        rows, admitted = [], []
        if batch.forward_mode.is_extend():
            decoding = set(batch.decoding_reqs or ())
            for req, tokens in zip(batch.reqs, batch.extend_lens, strict=True):
                rows.append([int(req.rid), int(tokens)])
                if req not in decoding and req.rid not in self._inside:
                    admitted.append([int(req.rid), req.prefix_len])
                    self._inside.add(req.rid)
        else:
            rows = [[int(req.rid), 1 + self.drafts] for req in batch.reqs]
        self._inside.difference_update(self.retracted)
        self.entry = [now, sorted(rows), self.free(), admitted, out]
        return batch

    def free(self) -> int:
        return int(
            self.token_to_kv_pool_allocator.full_available_size() + self.tree_cache.full_evictable_size()
        )

    def drop_head(self, now: int) -> bool:
        """What can never run is dropped, as the simulator does; SGLang would wait for ever."""
        if self.chunked_req is not None or not self.waiting_queue:
            return False
        head = int(self.waiting_queue.pop(0).rid)
        self.entry = [now, [], self.free(), [], [-1 - head]]
        self.clock.finished(head, now)
        return True

    # -- the model and its results --------------------------------------------------------------

    def launch(self, batch: ScheduleBatch, now: int) -> None:
        self.result_queue.append((batch.copy(), self._tokens(batch), now))
        if not self.enable_overlap or len(self.result_queue) > 1:
            self.process()
        self.last_batch = batch

    def _tokens(self, batch: ScheduleBatch) -> list[list[int] | None]:
        """The tokens of each row, or None where a prompt goes on."""
        tokens: list[list[int] | None] = []
        verifies = self.drafts and not batch.forward_mode.is_extend()
        for req in batch.reqs:
            number = int(req.rid)
            if req is self.chunked_req and batch.forward_mode.is_extend():
                tokens.append(None)
                continue
            done = self._emitted.get(number, 0)
            call = self.script.calls[number]
            if done >= call.output:
                tokens.append([EOS + 1])
                continue
            many = 1 + accepted(number, done, self.drafts) if verifies else 1
            ends = range(done, min(done + many, call.output))
            tokens.append([self.texts.output(number, at) for at in ends])
            self._emitted[number] = ends.stop
        return tokens

    def process(self) -> None:
        batch, tokens, now = self.result_queue.popleft()
        extend = batch.forward_mode.is_extend()
        decoding = set(batch.decoding_reqs or ()) if extend else set(batch.reqs)
        for req, new in zip(batch.reqs, tokens, strict=True):
            if new is None:
                req.inflight_middle_chunks -= 1
                continue
            if req.finished():
                continue
            if req.is_retracted:
                self._emitted[int(req.rid)] -= len(new)
                continue
            verified = bool(self.drafts) and not extend
            if self.append(req, array("q", new), computed=verified, prefilled=req not in decoding):
                self.clock.finished(int(req.rid), now + 1)
                self._inside.discard(req.rid)


class Loop:
    """The event loop of one scheduler, or of several that go round together, under one script."""

    def __init__(self, script: Script) -> None:
        logging.disable(logging.WARNING)
        self.script = script
        self.clock = Clock(script)
        self.ranks = self._ranks(Texts(script, own_ends=True))
        self.late = self.ranks[0].enable_overlap
        self.log: list[Entry] = []

    def _ranks(self, texts: Texts) -> list[Rank]:
        return [Rank(self.script, self.clock, texts)]

    def run(self, most_steps: int = 100_000) -> list[Entry]:
        now, busy, ranks = 0, False, self.ranks
        while len(self.log) < most_steps:
            self._receive(now - 1 if self.late and busy else now)
            batches = self._choose(now)
            if batches is None and ranks[0].result_queue:
                # The loop spins: results are processed, then it chooses again, at the same instant.
                for rank in ranks:
                    rank.process()
                self._receive(now)
                for rank in ranks:
                    rank.last_batch = None
                batches = self._choose(now)
            # It counts rounds, and these take no time.
            rounds = ranks[0].prefill_decode_interval + self.script.options.get("delayer_passes", 0)
            while batches is None and rounds and any(rank.has_prompts for rank in ranks):
                rounds -= 1
                batches = self._choose(now)
            if batches is None:
                for rank in ranks:
                    if not rank.has_prompts:
                        rank.new_token_ratio_tracker.reset()
                if self._give_up(now):
                    busy = False
                    continue
                due = self.clock.next_at
                if due is None:
                    return self.log
                now, busy = max(due, now), False
                continue
            for rank, batch in zip(ranks, batches, strict=True):
                rank.launch(batch, now)
            now, busy = now + 1, True
        raise RuntimeError(f"{self.script.name}: more than {most_steps} steps")

    def _receive(self, upto: int) -> None:
        """What has come in by then; clients that hung up, in SGLang's own way."""
        gone = [number for number, _ in self.clock.hang_ups(upto)]
        for number in self.clock.take(upto):
            self._rank_of(number).enqueue(number)
        for number in gone:
            self._rank_of(number).hang_up(number)

    def _rank_of(self, number: int) -> Rank:
        return self.ranks[self.script.calls[number].rank]

    def _choose(self, now: int) -> list[ScheduleBatch] | None:
        """A batch for every rank or for none."""
        batch = self.ranks[0].choose(now)
        self._note(self.ranks[0].entry)
        return None if batch is None else [batch]

    def _give_up(self, now: int) -> bool:
        dropped = self.ranks[0].drop_head(now)
        if dropped:
            self._note(self.ranks[0].entry)
        return dropped

    def _note(self, entry: Entry | None) -> None:
        if entry is not None:
            self.log.append(entry)

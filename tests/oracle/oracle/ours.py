"""Our schedulers and caches under a script: the simulator's own Rank, rules and Replica, step by step.

Only the world around is made here: every step lasts one tick, calls arrive as the script says, and
drafts are accepted as the script says. What is logged is read off the rank when a step is priced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from oracle.log import Entry
from oracle.script import Clock, Script, accepted
from v4sim.cache.legal import Hit, HitPolicy
from v4sim.cache.marks import WindowMarks
from v4sim.cache.owner import CacheOwner
from v4sim.cache.sglang_tree import SGLangTree
from v4sim.cache.vllm_tree import VLLMTree
from v4sim.clock import NORMAL, call_at
from v4sim.cost.base import ConstantCost
from v4sim.cost.load import RankLoad
from v4sim.engine.base import Scheduler
from v4sim.engine.call import Call
from v4sim.engine.chunk import Chunk
from v4sim.engine.late import spent
from v4sim.engine.rank import Rank
from v4sim.engine.replica import Replica
from v4sim.engine.sglang import SGLangRules
from v4sim.engine.vllm import VLLMRules
from v4sim.prefix import PrefixIndex
from v4sim.speculation import SpecPolicy
from v4sim.walks import Walks

TICK_NS = 1_000_000
_UNBOUNDED = 1 << 40


class Watched(Rank):
    """Notes what leaves and what enters."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.out: list[int] = []
        self.given_up: list[tuple[int, int, int]] = []  # when, who, room left
        self.entered: list[list[int]] = []

    def _enter(self, call: Call, hit: Hit, now_ns: int) -> None:
        super()._enter(call, hit, now_ns)
        self.entered.append([call.index, hit.tokens])

    def retract(self, call: Call, lookahead_tokens: int, **how: Any) -> None:
        super().retract(call, lookahead_tokens, **how)
        self.out.append(call.index)

    def drop(self, call: Call, content_tokens: int) -> None:
        super().drop(call, content_tokens)
        if not call.hung_up:
            self.out.append(call.index)

    def abort(self, call: Call, lookahead_tokens: int) -> None:
        super().abort(call, lookahead_tokens)
        self.given_up.append((self.choice_ns, call.index, self.owner.kv_available))

    def drop_head(self, outcome: str, now_ns: int) -> Call:
        call = super().drop_head(outcome, now_ns)
        self.given_up.append((now_ns, call.index, self.owner.kv_available))
        return call


class Planned:
    """The rules, with their last answer for each rank kept."""

    def __init__(self, rules: Scheduler) -> None:
        self._rules = rules
        self.chunks: dict[int, list[Chunk]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rules, name)

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]:
        self.chunks[rank.index] = chunks = self._rules.plan(rank, now_ns, visible_ns)
        return chunks


class WatchedReplica(Replica):
    """Notes the room that a choice leaves, before the results of the step before are processed."""

    room: Any = 0
    evictions: list[list[int]]
    on_nothing: Callable[[], None]

    def _plan(self, now: int, visible: int) -> tuple[list[list[Chunk]], list[bool], bool]:
        while self.evictions and self.evictions[0][0] * TICK_NS <= now:
            evict(self.ranks[0].owner, *self.evictions.pop(0)[1:])
        planned = super()._plan(now, visible)
        self.room = room_of(self.ranks)
        if not planned[2] and True not in planned[1]:
            self.on_nothing()
        return planned


def room_of(ranks: Sequence[Rank]) -> int | list[int]:
    """Of one rank a number, of several a list."""
    rooms = [rank.owner.kv_available for rank in ranks]
    return rooms[0] if len(rooms) == 1 else rooms


def evict(owner: CacheOwner, history_tokens: int, window_tokens: int) -> None:
    """So much, or as much as there is, as if it were needed; windows that go with history count."""
    tree = owner.tree
    history, windows = tree.kv_tokens, tree.swa_tokens
    tree.evict(history_tokens)
    tree.evict_swa(window_tokens - (windows - tree.swa_tokens))
    owner.kv.give(history - tree.kv_tokens)
    owner.swa.give(windows - tree.swa_tokens)


class Luck:
    """Acceptance by the script's rule; stands where a drawn acceptance table would."""

    def __init__(self, draft_tokens: int) -> None:
        self.draft_tokens = draft_tokens

    def accepted(
        self, uid: int, output_tokens: int, phases: object, *, drafts: int, **rest: object
    ) -> NDArray[np.int64]:
        return np.array([accepted(uid, g, drafts) for g in range(output_tokens)], dtype=np.int64)

    def accepted_together(
        self,
        uids: Sequence[int],
        lengths: NDArray[np.int64],
        within: NDArray[np.int64],
        last: NDArray[np.int64],
        phases: object,
        *,
        drafts: int | None = None,
        **rest: object,
    ) -> NDArray[np.int64]:
        parts = [
            self.accepted(u, n, phases, drafts=self.draft_tokens) for u, n in zip(uids, lengths, strict=True)
        ]
        return np.concatenate(parts)

    def record_sizes(self, steps: Sequence[int]) -> None:
        """Nobody asks for a tally."""


class Watcher(ConstantCost):
    """One tick a step. Being asked for a price is the moment at which a batch is final."""

    def __init__(self, world: World) -> None:
        super().__init__(TICK_NS / 1e9)
        self._world = world

    def step(self, loads: Sequence[RankLoad], width: int, kind: str) -> list[int]:
        self._world.note(loads, width)
        return super().step(loads, width, kind)


class World:
    """One replica under one script."""

    def __init__(self, script: Script, *, stepwise: bool = True) -> None:
        self.script = script
        self.options = options = script.options
        self.env = simpy.Environment(initial_time=0)
        self.clock = Clock(script)
        self.log: list[Entry] = []
        self._sent: dict[int, Call] = {}
        calls = script.calls
        table = _table(script)
        ranks = []
        for index in range(options.get("ranks", 1)):
            rank, rules = self._engine(table)
            rank.index = index
            ranks.append(rank)
        self.ranks, self.rank, self.rules = ranks, ranks[0], Planned(rules)
        drafts = options.get("draft_tokens", 0)
        walks = Walks(Luck(drafts), table, len(calls)) if drafts else None  # type: ignore[arg-type]
        self.replica = WatchedReplica(
            self.env,
            0,
            ranks,
            self.rules,
            Watcher(self),
            spec=SpecPolicy(drafts),
            walks=walks,
            spec_blocks_mixed=True,  # with several ranks only
            on_done=self._done,
            stepwise=stepwise,
        )
        self.replica.evictions = list(options.get("evictions", ()))
        self.replica.on_nothing = self._flush_evicted
        self._calls = calls

    def _engine(self, table: Any) -> tuple[Watched, Scheduler]:
        """A rank for the script, and the rules that fill its steps."""
        options = self.options
        page = options["page_tokens"]
        vllm = self.script.engine == "vllm"
        ahead = _hash_lookahead(options) if vllm else min(1, options.get("draft_tokens", 0))
        prefixes = PrefixIndex(table, page, ahead)
        window = options.get("window_tokens", 0)
        owner = CacheOwner(
            (VLLMTree if vllm else SGLangTree)(prefixes),
            HitPolicy("strict", page, window, 1),
            kv_tokens=options["kv_tokens"],
            swa_tokens=options.get("swa_tokens", _UNBOUNDED),
            request_slots=options.get("slots", 1 << 20),
            enabled=options.get("prefix_cache", True),
            marks=WindowMarks(prefixes) if options.get("retention_interval") == 0 else None,
        )
        rules = _vllm(options) if vllm else _sglang(options)
        return Watched(0, 0, owner, keeps_windows=vllm, keyless_tokens=0 if vllm else ahead), rules

    def run(self) -> list[Entry]:
        for when in sorted({call.at or 0 for call in self._calls if call.after is None}):
            self._arrive_at(when)
        self.env.run()
        self._flush()
        return self.log

    # -- arrivals -------------------------------------------------------------------------------

    def _arrive_at(self, tick: int) -> None:
        # After whatever else happens at that instant (a step's end), before the next choice.
        call_at(self.env, tick * TICK_NS, _ARRIVAL, self._arrive)  # type: ignore[arg-type]

    def _arrive(self) -> None:
        for number in self.clock.take(int(self.env.now) // TICK_NS):
            scripted = self._calls[number]
            call = Call(
                index=number,
                row=number,
                uid=number,
                session=number,
                copy=0,
                trigger=0,
                event_class=0,
                prompt_tokens=scripted.prompt,
                output_tokens=scripted.output,
                max_new_tokens=scripted.limit,
                priority=scripted.priority,
                bound_tokens=0,
                ready_ns=int(self.env.now),
                sent_ns=int(self.env.now),
                done=self.env.event(),
            )
            self._sent[number] = call
            self.replica.submit(call, scripted.rank)
            if scripted.patience is not None:
                gone_ns = int(self.env.now) + scripted.patience * TICK_NS
                call_at(self.env, gone_ns, NORMAL, self._hang_up)

    def _hang_up(self) -> None:
        for number, follow in self.clock.hang_ups(int(self.env.now) // TICK_NS):
            self.replica.hang_up(self._sent[number])
            for when, _ in follow:
                self._arrive_at(when)

    def _done(self, call: Call, now_ns: int) -> None:
        for when, _ in self.clock.finished(call.index, now_ns // TICK_NS):
            self._arrive_at(when)

    # -- log ------------------------------------------------------------------------------------

    def note(self, loads: Sequence[RankLoad], width: int) -> None:
        rows = []
        for load, rank in zip(loads, self.ranks, strict=True):
            for chunk in self.rules.chunks.get(rank.index, ()):
                rows.append([chunk.call.index, chunk.new_tokens + chunk.padding])
            if load.rows:
                rows += [[call.index, width] for call in (*rank.decoding, *spent(rank))]
        self.rules.chunks = {}  # the rules are not asked again while nobody waits or prefills
        self._flush()
        self._write(sorted(rows), [entry for rank in self.ranks for entry in rank.entered])
        for rank in self.ranks:
            rank.entered = []

    def _write(self, rows: list[list[int]], entered: list[list[int]]) -> None:
        out = [number for rank in self.ranks for number in rank.out]
        self.log.append([int(self.env.now) // TICK_NS, rows, self.replica.room, entered, out])
        for rank in self.ranks:
            rank.out = []

    def _flush_evicted(self) -> None:
        """A choice that only cost calls their places stands alone as well."""
        if any(rank.out for rank in self.ranks):
            self._write([], [])

    def _flush(self) -> None:
        """What was given up between steps stands alone."""
        for rank in self.ranks:
            for at_ns, number, room in rank.given_up:
                self.log.append([at_ns // TICK_NS, [], room, [], [-1 - number]])
            rank.given_up.clear()


_ARRIVAL = 2.5  # after every STEP_END of that instant, before DECIDE


def _table(script: Script) -> SimpleNamespace:
    """The columns of a trace that the prefix index and the walks read."""
    calls = script.calls
    column = lambda values: np.array(values, dtype=np.int64)  # noqa: E731
    return SimpleNamespace(
        n=len(calls),
        group_names=[],
        shared_tokens=column([call.shared for call in calls]),
        shared_output_tokens=column([call.shared_output for call in calls]),
        parent=column([-1 if call.parent is None else call.parent for call in calls]),
        group=column([-1] * len(calls)),
        group_tokens=column([0] * len(calls)),
        output_tokens=column([call.output for call in calls]),
        phase_offsets=column([0] * (len(calls) + 1)),
        phase_kind=np.zeros(0, dtype=np.int8),
        phase_tokens=column([]),
        acceptance={},
    )


def _vllm(options: dict[str, Any]) -> Scheduler:
    return VLLMRules(
        page_tokens=options["page_tokens"],
        max_batched_tokens=options["max_batched_tokens"],
        max_num_seqs=options["max_num_seqs"],
        long_prefill_token_threshold=options.get("long_prefill_token_threshold", 0),
        reserve_full_isl=options.get("reserve_full_isl", True),
        watermark=options.get("watermark", 0.0),
        draft_tokens=options.get("draft_tokens", 0),
        drops_last_block=_mtp(options) and not _hash_lookahead(options),
        hash_lookahead_tokens=_hash_lookahead(options),
        prefill_interval=options.get("prefill_schedule_interval", 1),
        shares_cadence=options.get("shares_cadence", False),
        late_results=options.get("async_scheduling", False),
    )


def _mtp(options: dict[str, Any]) -> bool:
    return options.get("draft_tokens", 0) > 0 and options.get("speculation", "mtp") == "mtp"


def _hash_lookahead(options: dict[str, Any]) -> int:
    return 1 if _mtp(options) and options.get("lookahead_hashes", True) else 0


def _sglang(options: dict[str, Any]) -> Scheduler:
    drafts = options.get("draft_tokens", 0)
    return SGLangRules(
        page_tokens=options["page_tokens"],
        window_tokens=options.get("window_tokens", 0),
        chunk_tokens=options["chunk_tokens"],
        max_prefill_tokens=options["max_prefill_tokens"],
        max_running=options["slots"],
        conservativeness=options["conservativeness"],
        clip_max_new_tokens=options["clip_max_new_tokens"],
        prefill_max_requests=options.get("prefill_max_requests"),
        prefill_decode_interval=options.get("prefill_decode_interval", 0),
        schedule_policy=options.get("schedule_policy", "fcfs"),
        retraction_policy=options.get("retraction_policy", "default"),
        draft_alloc_tokens=drafts + 1 if drafts else 0,
        hash_lookahead_tokens=min(1, drafts),
        mixes=options.get("mixed_chunk", False),
        late_results=options.get("overlap", False),
    )

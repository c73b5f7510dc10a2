"""How the prompts of one session follow from each other: appends, and everything else.

Per call: how long the prompt is, which earlier call it extends and at what length. The parent is the
earliest call that has the whole shared prefix. Kinds of step:

  append      the previous prompt, its output, and what the tool or the user added
  load        an append larger than the prompt before it
  rebuild     the conversation again behind another beginning: only tools and system prompt are shared
  compaction  a summary replaces the conversation
  edit        the end of the previous prompt is replaced
  fork        an earlier call of the session is extended

Left out: side calls to other models, and prompts that come back from another branch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from v4traces.synth.params import SynthParams
from v4traces.synth.plan import LEAST_TEXT_TOKENS, SessionPlan
from v4traces.synth.streams import Floats, Purpose, Streams, Trait, blend, even
from v4traces.synth.tables import TAIL_CHANGED_TOKENS


class Step(NamedTuple):
    """One prompt. `parent` is a turn, -1 for none; `kept_output` is None where it cannot follow."""

    kind: str
    prompt_tokens: int
    parent: int
    shared_tokens: int
    kept_output: int | None


class History:
    """The prompts of a session so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def owner(self, turn: int, length: int) -> int:
        """The earliest call whose prompt starts with the first `length` tokens of that of `turn`."""
        steps = self.steps
        while steps[turn].parent >= 0 and steps[turn].shared_tokens >= length:
            turn = steps[turn].parent
        return turn

    def extend(self, kind: str, turn: int, shared: int, added: int) -> Step:
        """A prompt that starts with `shared` tokens of that of `turn` and adds `added`."""
        parent = self.owner(turn, shared) if shared > 0 else -1
        return Step(kind, shared + added, parent, shared, None)


def pace(
    plan: SessionPlan, params: SynthParams, streams: Streams
) -> tuple[list[bool], list[float], list[float]]:
    """Per call: whether a user starts it, the gap before it in seconds, and the rank of that gap."""
    by_user = streams.uniforms(plan.index, Purpose.USER, plan.calls) < plan.user_share
    ranks = streams.uniforms(plan.index, Purpose.GAP, plan.calls)
    for start, trait, likeness in (
        (by_user, Trait.USER_GAP, params.user_gap_likeness),
        (~by_user, Trait.TOOL_GAP, params.tool_gap_likeness),
    ):
        ranks[start] = blend(streams.trait(plan.index, trait), even(ranks[start]), likeness)
    gaps = np.where(by_user, params.user_gap_s.at(ranks), params.tool_gap_s.at(ranks))
    return by_user.tolist(), gaps.tolist(), ranks.tolist()


def output_ranks(plan: SessionPlan, params: SynthParams, streams: Streams) -> Floats:
    """Per call: the rank of its output length."""
    drawn = streams.uniforms(plan.index, Purpose.OUTPUT, plan.calls)
    return blend(streams.trait(plan.index, Trait.OUTPUT), drawn, params.output_likeness)


class Evolution:
    """Draws the steps of one session; sizes are drawn for all calls at once, used where they apply."""

    def __init__(
        self,
        plan: SessionPlan,
        params: SynthParams,
        streams: Streams,
        by_user: list[bool],
        gaps: list[float],
        output_ranks: Floats,
    ) -> None:
        self.plan, self.params, self.by_user = plan, params, by_user
        n, index = plan.calls, plan.index
        self.least = plan.group_tokens + LEAST_TEXT_TOKENS
        users = np.array(by_user)
        self.outputs: list[int] = np.rint(params.output.at(output_ranks)).astype(np.int64).tolist()
        drawn = streams.uniforms(index, Purpose.EXTRA, n)
        drawn[1:] = blend(1.0 - output_ranks[:-1], drawn[1:], params.output_shortens_extra)
        extra = blend(plan.growth, drawn, params.extra_likeness)
        added = np.where(users, params.user_extra.at(extra), params.tool_extra.at(extra))
        if n > 1:
            added[1] = params.second_call_extra.one(float(extra[1]))
        self.added = np.rint(added).astype(np.int64).tolist()
        dropped = streams.uniforms(index, Purpose.DROP, n)
        share = params.output_dropped_share
        kept = np.where(dropped < share, params.output_kept.at(dropped / (share or 1.0)), 1.0)
        self.kept = kept.tolist()
        self.tail = streams.uniforms(index, Purpose.TAIL, n).tolist()
        self.event = streams.uniforms(index, Purpose.EVENT, n).tolist()
        self.size = streams.uniforms(index, Purpose.EVENT_SIZE, n).tolist()
        self.share = streams.uniforms(index, Purpose.EVENT_SHARE, n).tolist()
        rebuild = np.where(users, params.rebuild_by_user, params.rebuild_by_gap.at(np.array(gaps)))
        if n > 1:
            rebuild[1] = params.rebuild_second_call.one(plan.first_prompt_tokens)
        turns = np.arange(n, dtype=np.float64)
        # Edges of one interval per kind; compaction depends on the context and comes last.
        load = rebuild + params.load_by_turn.at(turns)
        edit = load + np.where(users, params.edit_by_user, params.edit_by_tool)
        fork = edit + np.where(users, params.fork_by_user, params.fork_by_tool)
        self.edges = list(zip(rebuild.tolist(), load.tolist(), edit.tolist(), fork.tolist(), strict=True))
        self.history = History()

    def run(self) -> list[Step]:
        """The steps of the whole session; fewer than planned if its window is full before."""
        steps = self.history.steps
        steps.append(Step("first", self.plan.first_prompt_tokens, -1, 0, None))
        window = self.plan.window_tokens
        limit = int(self.params.compaction_limit * window)
        for turn in range(1, self.plan.calls):
            previous = steps[-1].prompt_tokens
            self.outputs[turn - 1] = min(self.outputs[turn - 1], window - previous)
            step = self._draw(turn, previous, self.outputs[turn - 1])
            if step.prompt_tokens > limit:
                if not self.plan.compacts:
                    break
                step = self._compaction(turn, previous)
            steps.append(step)
        last = len(steps) - 1
        self.outputs[last] = min(self.outputs[last], window - steps[last].prompt_tokens)
        return steps

    def _draw(self, turn: int, previous: int, output: int) -> Step:
        event = self.event[turn]
        rebuild, load, edit, fork = self.edges[turn]
        if event < rebuild:
            return self._rebuild(turn, previous)
        if event < load:
            if previous >= self.params.load_below_tokens:
                return self._append(turn, previous, output)
            tokens = round(self.params.load_tokens.one(self.size[turn]))
            return Step("load", previous + output + tokens, turn - 1, previous, output)
        if event < edit:
            return self._edit(turn, previous)
        if event < fork:
            return self._fork(turn) if turn > 2 else self._append(turn, previous, output)
        by = self.params.compaction_by_user if self.by_user[turn] else self.params.compaction_by_tool
        rate = by.one(previous / self.plan.window_tokens)
        if event < fork + rate and self.plan.compacts and previous > 2 * self.least:
            return self._compaction(turn, previous)
        return self._append(turn, previous, output)

    def _append(self, turn: int, previous: int, output: int) -> Step:
        kept = self.kept[turn]
        if kept < 1.0:
            return Step("append", previous + max(1, int(output * kept)), turn - 1, previous, None)
        grown = output + self.added[turn]
        tail = self.tail[turn]
        if tail < self.params.tail_changed_share:
            changed = 1 + int(tail / self.params.tail_changed_share * TAIL_CHANGED_TOKENS)
            shared = max(0, previous - changed)
            return self.history.extend("append", turn - 1, shared, previous - shared + grown)
        return Step("append", previous + grown, turn - 1, previous, output)

    def _rebuild(self, turn: int, previous: int) -> Step:
        p = self.params
        ratio = (p.second_call_rebuild_ratio if turn == 1 else p.rebuild_ratio).one(self.size[turn])
        most = min(int(p.compaction_limit * self.plan.window_tokens), previous + p.rebuild_most_added_tokens)
        prompt = max(self.least, min(round(previous * ratio), most))
        shared = self._beginning(prompt, p.rebuild_shared.one(self.share[turn]))
        return self.history.extend("rebuild", 0, shared, prompt - shared)

    def _compaction(self, turn: int, previous: int) -> Step:
        p = self.params
        drawn = round(p.compacted_prompt.one(self.size[turn]))
        # It makes room, whatever the window; tools and system prompt stay.
        prompt = max(self.least, min(drawn, int(0.49 * previous)))
        shared = self._beginning(prompt, p.compacted_shared.one(self.share[turn]))
        return self.history.extend("compaction", 0, shared, prompt - shared)

    def _beginning(self, prompt: int, times: float) -> int:
        """Tokens shared with the session's first prompt: `times` its tools and system prompt."""
        return min(round(times * self.plan.group_tokens), self.plan.first_prompt_tokens, prompt - 1)

    def _edit(self, turn: int, previous: int) -> Step:
        rewind = round(self.params.edit_rewind.one(self.size[turn]))
        shared = max(min(self.plan.group_tokens, previous - 1), previous - rewind)
        return self.history.extend(
            "edit", turn - 1, shared, round(self.params.edit_suffix.one(self.share[turn]))
        )

    def _fork(self, turn: int) -> Step:
        back = min(round(self.params.fork_distance.one(self.size[turn])), turn - 1)
        earlier = turn - max(2, back)
        shared = self.history.steps[earlier].prompt_tokens
        return self.history.extend(
            "fork", earlier, shared, round(self.params.fork_suffix.one(self.share[turn]))
        )

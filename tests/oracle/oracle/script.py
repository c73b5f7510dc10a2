"""What happens to one scheduler: calls with prefix structure, arriving by step, and its options.

Time is counted in steps of equal length. A call arrives at step `at`, or `delay` steps after the end
of the step in which the call `after` emitted its last token. Its prompt begins with `shared` tokens
of its parent's prompt and then (only if that is the whole prompt) `shared_output` tokens of its
parent's output; every other token is unlike any other. A client may hang up `patience` steps after its
call arrived; what comes after that call then counts from there. With `ranks` among the options each call
goes to the DP rank that it names.

Left out: time between steps.
"""

from __future__ import annotations

import heapq
import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call. `limit` is the client's max_tokens; the answer ends by itself after `output` ≤ limit."""

    prompt: int
    output: int
    limit: int
    at: int | None = None
    after: int | None = None
    delay: int = 0
    parent: int | None = None
    shared: int = 0
    shared_output: int = 0
    priority: int = 0
    patience: int | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """`options` are named as in `engine.*`, with `kv_tokens`, `slots`, `draft_tokens` and the like."""

    name: str
    kind: str
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    calls: tuple[ScriptCall, ...] = ()

    def dump(self) -> dict[str, Any]:
        """Compact: defaults are left out, each call is a list of [key, value] free of noise."""
        data = asdict(self)
        blank = asdict(ScriptCall(0, 0, 0))
        data["calls"] = [
            {key: value for key, value in call.items() if value != blank[key] or key in ("prompt", "output")}
            for call in data["calls"]
        ]
        return data

    @classmethod
    def load(cls, data: dict[str, Any]) -> Script:
        calls = tuple(ScriptCall(**{"limit": 0, **call}) for call in data["calls"])
        return cls(data["name"], data["kind"], data["engine"], data["options"], calls)

    def text(self) -> str:
        return json.dumps(self.dump(), sort_keys=True)


def accepted(call: int, emitted: int, drafts: int) -> int:
    """Drafts that a verify step accepts which starts after `emitted` tokens of `call`: fixed, no table."""
    return (call * 7 + emitted * 5 + (emitted * emitted) // 3) % (drafts + 1)


class Clock:
    """When calls arrive, given when others finish, and whose client hangs up. Both sides keep their own.

    A client that sees its last token at the instant at which it would hang up still hangs up.
    """

    def __init__(self, script: Script) -> None:
        self._calls = script.calls
        self._due: dict[int, list[int]] = {}
        self._waiting: dict[int, list[int]] = {}
        self._hang_ups: list[tuple[int, int]] = []
        self._ended: dict[int, int] = {}
        for number, call in enumerate(script.calls):
            if call.after is None:
                self._push(call.at or 0, number)
            else:
                self._waiting.setdefault(call.after, []).append(number)

    def _push(self, when: int, number: int) -> None:
        self._due.setdefault(when, []).append(number)
        patience = self._calls[number].patience
        if patience is not None:
            heapq.heappush(self._hang_ups, (when + patience, number))

    def finished(self, call: int, at: int) -> list[tuple[int, int]]:
        """`call` emitted its last token in the step that ended at `at`; what is due because of it."""
        self._ended.setdefault(call, at)
        follow = [(at + self._calls[number].delay, number) for number in self._waiting.pop(call, ())]
        for when, number in follow:
            self._push(when, number)
        return follow

    def hang_ups(self, upto: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """Calls whose clients have hung up by `upto`, in that order, each with what is due because of it."""
        gone: list[tuple[int, list[tuple[int, int]]]] = []
        while self._hang_ups and self._hang_ups[0][0] <= upto:
            at, number = heapq.heappop(self._hang_ups)
            if self._ended.get(number, at) >= at:
                gone.append((number, self.finished(number, at)))
        return gone

    def take(self, upto: int) -> list[int]:
        """Calls that have arrived by `upto`, in order of arrival, then of number."""
        taken: list[int] = []
        for when in sorted(when for when in self._due if when <= upto):
            taken += sorted(self._due.pop(when))
        return taken

    @property
    def next_at(self) -> int | None:
        return min(self._due, default=None)

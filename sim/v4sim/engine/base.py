"""What a scheduler is: the rules by which one rank fills its next step.

A scheduler owns no state of the cache or the calls (the `Rank` does); it decides, and calls the
rank's verbs. Contract for every variant:

* `plan` may admit, continue and block calls, and returns the prefill chunks of the next step. It
  sees only calls that reached the queue by `visible_ns`.
* `make_decode_room` makes the pages of the next decode step fit, by evicting, then by retracting.
* `quiet_steps` promises how many pure decode steps `plan` would answer the same, provided that
  nothing joins, leaves or arrives. Promising too few costs time, too many would be wrong.
* Nothing here reads `call.output_tokens`: an engine does not know when an answer ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from v4sim.engine.call import Call
    from v4sim.engine.chunk import Chunk
    from v4sim.engine.rank import Rank

ENDLESS = 1 << 40


class Scheduler(Protocol):
    """The rules of one engine for one rank."""

    @property
    def mixes(self) -> bool:
        """Decodes run in the same step as prefill chunks."""
        ...

    @property
    def decodes_first(self) -> bool:
        """Where it mixes: decodes get their pages before anybody is admitted, or after."""
        ...

    @property
    def late_results(self) -> bool:
        """The next batch is chosen before the results of the current one are known."""
        ...

    @property
    def reorders(self) -> bool:
        """An arrival may overtake a call that waits."""
        ...

    @property
    def plans_always(self) -> bool:
        """`plan` must be asked even where nobody waits or prefills."""
        ...

    @property
    def foresees_limits(self) -> bool:
        """With late results: no step is scheduled past the length that the client asked for."""
        ...

    @property
    def in_flight_tokens(self) -> int | None:
        """Pages are counted from the context before the step in flight, and so many tokens; None: known."""
        ...

    @property
    def keeps_last_token(self) -> bool:
        """A call that was computed once more than needed leaves its last token in the cache as well."""
        ...

    @property
    def publishes_late(self) -> bool:
        """A prompt can be hit once the result of its last chunk is processed, not once it is computed."""
        ...

    @property
    def computes_aborted(self) -> bool:
        """A running call whose client hung up is computed once more; or else its memory is free at once."""
        ...

    def hashed_in_flight(self, rank: Rank, call: Call) -> int:
        """Where it is free at once: what stays cached of a call that is in the step under way."""
        ...

    @property
    def keeps_output(self) -> bool:
        """The output of a finished call becomes a reusable prefix."""
        ...

    def plan(self, rank: Rank, now_ns: int, visible_ns: int) -> list[Chunk]: ...

    def make_decode_room(self, rank: Rank, needed_tokens: int) -> bool:
        """Returns True if calls were retracted, so that the need must be computed again."""
        ...

    def quiet_steps(self, rank: Rank) -> int: ...

    def chunks_ahead(self, rank: Rank, chunk: Chunk) -> int:
        """After the step that computes `chunk`: how many more steps this rank would, undisturbed, compute
        another chunk of that size of the same call and nothing else. The last chunk never counts."""
        ...

    def decode_alloc_tokens(self, width: int) -> int:
        """Tokens beyond the context for which a decode step holds pages."""
        ...

    def after_decode(self, rank: Rank, steps: int) -> None:
        """The rank decoded in so many steps, and did nothing else in them."""
        ...

    def after_extend(self, rank: Rank) -> None:
        """Some rank of the replica ran a prefill chunk in the step that just ended."""
        ...

    def on_idle(self, rank: Rank) -> None:
        """No rank of the replica has anything to run; the loop goes round without a step."""
        ...

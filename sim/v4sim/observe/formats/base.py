"""What a log format is: a name, how a line of it is told, and how it is read and written.

Readers and writers are one line at a time. A writer exists so that the fit can be tested on logs with known
constants: it takes what a run knows of a call (`Told`) and writes what the engine would.
Left out: a line that is of the format but holds no finished call reads as None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from v4sim.observe.seen import Seen, text, whole

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """A completed call of a run; moments in nanoseconds since the start of the run."""

    session: str
    turn: int
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int
    hit_host_tokens: int
    hit_storage_tokens: int
    sent_ns: int
    queued_ns: int
    admit_ns: int
    first_token_ns: int
    last_token_ns: int
    verify_steps: int
    drafts_offered: int
    drafts_accepted: int

    @property
    def cached_tokens(self) -> int:
        return self.hit_tokens + self.hit_host_tokens + self.hit_storage_tokens


@dataclass(frozen=True, slots=True)
class LogFormat:
    """One format by its name."""

    name: str
    what: str
    matches: Callable[[Line], bool]
    read: Callable[[Line, str], Seen | None]
    write: Callable[[Told], dict[str, Any]]


def identity(line: Line) -> tuple[str | None, int | None]:
    """Session and turn that the client wrote beside a response."""
    return text(line, "session_id", "conversation_id", "session"), whole(line, "turn", "turn_index")

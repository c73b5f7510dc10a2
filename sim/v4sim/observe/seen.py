"""One call as a log of the engine or of its load generator shows it.

A field is None where the log does not say. `ttft_s` counts from the moment the client sent the call, host
work before the scheduler included; `engine_ttft_s` from the moment the scheduler got it. Units: seconds,
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one log line tells about one call."""

    where: str  # file and line, for messages
    prompt_tokens: int
    output_tokens: int
    session: str | None = None
    turn: int | None = None
    sent_s: float | None = None  # any epoch, the same in one log
    ttft_s: float | None = None
    engine_ttft_s: float | None = None
    e2e_s: float | None = None
    decode_s: float | None = None  # first to last token
    cached_tokens: int | None = None
    verify_steps: int | None = None
    accepted_drafts: int | None = None

    @property
    def tpot_s(self) -> float | None:
        """Decode time per output token after the first."""
        if self.decode_s is None or self.output_tokens < 2:
            return None
        return self.decode_s / (self.output_tokens - 1)


def number(data: Mapping[str, Any], *names: str) -> float | None:
    """The first of these keys that holds a finite number; booleans are none."""
    for name in names:
        value = data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            return float(value)
    return None


def whole(data: Mapping[str, Any], *names: str) -> int | None:
    value = number(data, *names)
    return None if value is None else int(value)


def mapping(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The first of these keys that holds an object; an empty one if none does."""
    for name in names:
        value = data.get(name)
        if isinstance(value, Mapping):
            return value
    return {}


def text(data: Mapping[str, Any], *names: str) -> str | None:
    for name in names:
        value = data.get(name)
        if isinstance(value, str) and value:
            return value
    return None

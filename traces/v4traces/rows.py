"""One call and the facts about a whole file, as plain values.

`CallRow` has one field per column of `schema.COLUMNS`, in the same order; `None` is null. It is what
importers and generators hand to `TraceWriter`; readers get columns (`TraceTable`), not rows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from v4traces.errors import TraceError
from v4traces.schema import SCHEMA_VERSION, TRACE_CLASSES


class CallRef(NamedTuple):
    """Names a call: the key that `parent_*` and `after` use."""

    session_id: str
    turn: int


class Phase(NamedTuple):
    """A run of output tokens of one kind (`schema.PHASES`)."""

    kind: str
    tokens: int


class Acceptance(NamedTuple):
    """P(draft token at position i accepted | those before it were), for one kind of output."""

    kind: str
    per_position: tuple[float, ...]


class CachedTokens(NamedTuple):
    """Prompt tokens that the recorded engine served from each tier."""

    device: int
    host: int
    storage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One call. `after` None means the previous turn of the same session, () means nothing."""

    session_id: str
    turn: int
    task_id: str | None = None
    parent_session: str | None = None
    parent_turn: int | None = None
    shared_tokens: int = 0
    shared_output_tokens: int | None = None
    group_id: str | None = None
    group_tokens: int | None = None
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    reasoning_tokens: int | None = None
    arrival_s: float | None = None
    after: tuple[CallRef, ...] | None = None
    delay_s: float = 0.0
    trigger: str = "user"
    tool_class: str | None = None
    tool_latency_s: float | None = None
    phases: tuple[Phase, ...] | None = None
    acceptance: tuple[Acceptance, ...] | None = None
    observed_cached_tokens: CachedTokens | None = None
    observed_ttft_s: float | None = None
    observed_e2e_s: float | None = None
    snapshot_id: str | None = None
    tool_schema_id: str | None = None
    system_id: str | None = None
    environment_id: str | None = None
    model: str | None = None
    priority: int | None = None
    success: bool | None = None


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """What holds for every row of a file.

    `prefix_error_tokens` bounds how far a shared length may fall short of the true one: hashes of
    whole blocks say nothing about the last, partial block. `token_scale` is the factor from the
    source tokenizer's counts to those in the file.
    """

    source_format: str
    trace_class: str
    block_tokens: int = 0
    prefix_error_tokens: int = 0
    tokenizer: str = "unknown"
    token_scale: float = 1.0
    scrub_version: int = 1
    idle_cap_s: float | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise TraceError(
                f"the trace has schema version {self.schema_version!r}; this build reads version"
                f" {SCHEMA_VERSION}. Import the source again, or install the v4traces that wrote it."
            )
        if self.trace_class not in TRACE_CLASSES:
            raise TraceError(
                f"trace_class is {self.trace_class!r}; it must be one of {', '.join(TRACE_CLASSES)}."
            )

    def with_notes(self, *notes: str) -> TraceMetadata:
        """The same metadata with notes added at the end."""
        return replace(self, notes=self.notes + notes)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TraceMetadata:
        """Read the value of the file's `v4traces` key; unknown keys are an error, not a shrug."""
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise TraceError(f"the trace metadata is not JSON ({error}). Import the source again.") from None
        if not isinstance(data, dict) or "schema_version" not in data:
            raise TraceError("the trace metadata has no schema_version. Import the source again.")
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            cls("", TRACE_CLASSES[0], schema_version=version)
        unknown = sorted(set(data) - {field.name for field in fields(cls)})
        if unknown:
            raise TraceError(
                f"the trace metadata has the unknown key {unknown[0]!r}. It was not written by this"
                " version of v4traces; import the source again."
            )
        try:
            return cls(**{**data, "notes": tuple(data.get("notes", ()))})
        except TypeError as error:
            raise TraceError(f"the trace metadata is incomplete: {error}. Import the source again.") from None

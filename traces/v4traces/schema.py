"""The columns of `trace.parquet`: one row is one call of a language model.

Units stand in the names (`_s` seconds, `_tokens` tokens). A nullable column may be missing from a
file, which reads as all null. Prefix structure is a parent link plus a length, never a list of block
hashes, so that a million-token session costs no more rows or bytes than a short one.

Left out on purpose: everything that could carry text. There is no free-form column.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

SCHEMA_VERSION = 1
METADATA_KEY = b"v4traces"

# What made the call start. `subagent` is the first call of a sub-agent's session.
TRIGGERS = ("user", "tool_result", "subagent", "resume", "retry")
# What the output consists of; acceptance of draft tokens differs between them.
PHASES = ("reasoning", "code", "tool_json", "prose", "recovery")
# hash_exact: prefixes proven by block hashes. count_derived: inferred from token counts.
TRACE_CLASSES = ("hash_exact", "count_derived", "synthetic")


class Column(NamedTuple):
    """One column of the file."""

    name: str
    type: pa.DataType
    nullable: bool


_REF = pa.struct([("session_id", pa.string()), ("turn", pa.int32())])
_PHASE = pa.struct([("kind", pa.string()), ("tokens", pa.int32())])
_ACCEPTANCE = pa.struct([("kind", pa.string()), ("per_position", pa.list_(pa.float32()))])
_CACHED = pa.struct([("device", pa.int32()), ("host", pa.int32()), ("storage", pa.int32())])

COLUMNS: tuple[Column, ...] = (
    Column("session_id", pa.string(), False),
    Column("turn", pa.int32(), False),
    Column("task_id", pa.string(), True),
    Column("parent_session", pa.string(), True),
    Column("parent_turn", pa.int32(), True),
    Column("shared_tokens", pa.int32(), False),
    Column("shared_output_tokens", pa.int32(), True),
    Column("group_id", pa.string(), True),
    Column("group_tokens", pa.int32(), True),
    Column("prompt_tokens", pa.int32(), False),
    Column("output_tokens", pa.int32(), False),
    Column("max_output_tokens", pa.int32(), True),
    Column("reasoning_tokens", pa.int32(), True),
    Column("arrival_s", pa.float64(), True),
    Column("after", pa.list_(_REF), True),
    Column("delay_s", pa.float64(), False),
    Column("trigger", pa.string(), False),
    Column("tool_class", pa.string(), True),
    Column("tool_latency_s", pa.float64(), True),
    Column("phases", pa.list_(_PHASE), True),
    Column("acceptance", pa.list_(_ACCEPTANCE), True),
    Column("observed_cached_tokens", _CACHED, True),
    Column("observed_ttft_s", pa.float64(), True),
    Column("observed_e2e_s", pa.float64(), True),
    Column("snapshot_id", pa.string(), True),
    Column("tool_schema_id", pa.string(), True),
    Column("system_id", pa.string(), True),
    Column("environment_id", pa.string(), True),
    Column("model", pa.string(), True),
    Column("priority", pa.int32(), True),
    Column("success", pa.bool_(), True),
)

COLUMN_NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)


def arrow_schema() -> pa.Schema:
    """The schema as written; readers accept any type that casts to it without loss."""
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in COLUMNS])

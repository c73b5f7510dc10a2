"""What an output consists of: reasoning, prose, tool call, code, recovery, in that order of generation.

Which parts an output has depends on its length and on what follows (measured); how long the parts are
is assumed, since the source records the types of content but not their lengths. Units: tokens.
"""

from __future__ import annotations

from bisect import bisect_right

from v4traces.rows import Phase
from v4traces.synth.tool_tables import (
    CALL_FRAME_TOKENS,
    LONG_CALL_TOKENS,
    OUTPUT_BANDS,
    REASONING_BEFORE_USER,
    SHAPES,
    SHAPES_BEFORE_TOOL,
    SPLIT,
)

_CUMULATIVE = tuple(tuple(sum(row[: k + 1]) for k in range(len(row) - 1)) for row in SHAPES_BEFORE_TOOL)
# A part has at least this many tokens; a shorter output has fewer parts.
_LEAST_PART = 8


def shape(output: int, calls_tool: bool, u: float) -> str:
    """The parts of an output, as letters of `tool_tables.SHAPES`."""
    band = bisect_right(OUTPUT_BANDS, output)
    if calls_tool:
        parts = SHAPES[bisect_right(_CUMULATIVE[band], u)]
    else:
        parts = "RP" if u < REASONING_BEFORE_USER[band] else "P"
    return parts if output >= _LEAST_PART * len(parts) else parts[-1]


def phases(output: int, parts: str, u: float, writes: bool, repairs: bool) -> tuple[Phase, ...]:
    """Split `output` over its parts. `writes`: the tool call is an edit. `repairs`: a tool failed before."""
    sizes = _split(output, parts, u)
    found: list[Phase] = []
    for part, tokens in zip(parts, sizes, strict=True):
        if part == "T" and (writes or tokens > LONG_CALL_TOKENS) and tokens > CALL_FRAME_TOKENS:
            found.append(Phase("tool_json", CALL_FRAME_TOKENS))
            found.append(Phase("code", tokens - CALL_FRAME_TOKENS))
        elif part == "T":
            found.append(Phase("tool_json", tokens))
        else:
            found.append(Phase("reasoning" if part == "R" else "prose", tokens))
    if repairs and found[0].kind != "tool_json":
        found[0] = Phase("recovery", found[0].tokens)
    return tuple(found)


def reasoning_tokens(spent: tuple[Phase, ...]) -> int:
    """Tokens of an output that are reasoning."""
    # Reasoning comes first or not at all.
    return spent[0].tokens if spent[0].kind == "reasoning" else 0


def _split(output: int, parts: str, u: float) -> list[int]:
    if len(parts) == 1:
        return [output]
    # One number moves the parts against each other: the others grow where the last shrinks.
    weights = [SPLIT[part] * (0.5 + u) for part in parts]
    weights[-1] = SPLIT[parts[-1]] * (1.5 - u)
    scale = output / sum(weights)
    sizes = [max(_LEAST_PART, int(weight * scale)) for weight in weights[:-1]]
    return [*sizes, output - sum(sizes)]

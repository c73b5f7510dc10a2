"""The body of `v4traces synth`: writes a synthetic trace to a file, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from v4traces.errors import TraceError
from v4traces.synth.generate import SAMPLE_SEED, SAMPLE_SESSIONS, generate, metadata
from v4traces.synth.params import SynthParams
from v4traces.write import TraceWriter

SAMPLE_PATH = Path(__file__).resolve().parents[1] / "data" / "sample.parquet"


def command(
    output: str | Path | None = None,
    sessions: int | None = None,
    seed: int | None = None,
    sample: bool = False,
    arrivals_rate: float | None = None,
    force: bool = False,
    calls: int | None = None,
    context_cap_tokens: int | None = None,
) -> Path:
    """Write a trace and return its path.

    `sample` makes the bundled trace again, byte for byte, over the bundled file unless `output` is
    given. With `calls` and no `sessions`, sessions go on until there are that many calls.
    """
    if sample:
        given = {
            "sessions": sessions,
            "seed": seed,
            "arrivals rate": arrivals_rate,
            "calls": calls,
            "context cap": context_cap_tokens,
        }
        for name, value in given.items():
            if value is not None:
                raise TraceError(
                    f"the bundled sample has a fixed recipe, so {name} = {value} cannot go with --sample."
                    " Leave one of the two out."
                )
        path = SAMPLE_PATH if output is None else Path(output)
        path.parent.mkdir(parents=True, exist_ok=True)
        force = force or output is None
    elif output is None:
        raise TraceError("no output is named. Give -o FILE, or --sample for the bundled trace.")
    else:
        path = Path(output)
    if sessions is None and calls is None:
        sessions = SAMPLE_SESSIONS
    seed = SAMPLE_SEED if seed is None else seed
    params = replace(SynthParams(), context_cap_tokens=context_cap_tokens)
    rows = generate(params, seed, sessions, calls=calls, arrivals_rate=arrivals_rate)
    with TraceWriter(path, metadata(params, seed, arrivals_rate), force=force) as writer:
        writer.append(rows)
    return path

"""A decision log: what one scheduler did in every step that ran.

One entry a step, a list (JSON keeps it small):
    [step, rows, free, admitted, out]
rows      [call, tokens] of everything that was computed, sorted by call
free      tokens of the history pool that are free or can be evicted, after the step was planned; of several
          ranks a list. Their rows, admissions and losses are told together, rank by rank.
admitted  [call, prefix tokens taken from the cache], in order of admission
out       calls that lost their place (preempted, retracted), in order; -1-call: given up

A file holds many scripts with their logs and names the engine's version once.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from oracle.script import SCHEMA, Script

Entry = list[Any]


def write(path: Path, engine: str, version: str, runs: list[tuple[Script, list[Entry]]]) -> None:
    data = {
        "schema_version": SCHEMA,
        "engine": engine,
        "version": version,
        "entry": ["step", "rows", "free", "admitted", "out"],
        "runs": [{"script": script.dump(), "log": pack(log)} for script, log in runs],
    }
    save(path, data)


def save(path: Path, data: dict[str, Any]) -> None:
    """JSON, packed; the same bytes for the same data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    with (
        path.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9, mtime=0, filename="") as out,
    ):
        out.write(text.encode())


def read(path: Path) -> tuple[str, list[tuple[Script, list[Entry]]]]:
    """(version of the engine, runs)."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    if data["schema_version"] != SCHEMA:
        raise ValueError(
            f"{path.name}: schema {data['schema_version']}, this reads {SCHEMA}; run `make oracle`"
        )
    return data["version"], [(Script.load(run["script"]), unpack(run["log"])) for run in data["runs"]]


def pack(log: list[Entry]) -> list[Entry]:
    """Steps as differences; the rows of a step that repeats the last one's are left out (null)."""
    packed, last_step, last_rows = [], 0, None
    for step, rows, free, admitted, out in log:
        packed.append([step - last_step, None if rows == last_rows else rows, free, admitted, out])
        last_step, last_rows = step, rows
    return packed


def unpack(packed: list[Entry]) -> list[Entry]:
    log, step, last_rows = [], 0, None
    for gap, rows, free, admitted, out in packed:
        step += gap
        last_rows = last_rows if rows is None else rows
        log.append([step, last_rows, free, admitted, out])
    return log

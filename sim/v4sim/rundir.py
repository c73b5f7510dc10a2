"""A run directory: written whole or not at all, the same bytes for the same run.

    result.json     everything a report says, schema version 1, one line per top-level key
    calls.parquet   one row per call (`metrics.calls_file`)
    timeline.json   the run as slices, for Perfetto (`timeline`)
    report.html     made by v4reports, through `finish`

All of it is first written to a hidden sibling `.NAME.PID.partial`, which then takes the name by a rename;
whatever goes wrong before removes it. No wall-clock time, path of the machine or user name enters a file:
what a run says about its origin is what the caller puts into the manifest. Floats have 12 significant
digits, so that the last bits of a sum, which differ between processors, do not show.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from v4sim.errors import RunError
from v4sim.metrics.calls_file import read_calls, write_calls

if TYPE_CHECKING:
    from v4sim.metrics.calls import Calls
    from v4sim.metrics.summary import Summary
    from v4sim.results import RunResult

SCHEMA_VERSION = 1
RESULT, CALLS, TIMELINE, REPORT = "result.json", "calls.parquet", "timeline.json", "report.html"
COMPARISON, TRACE, RECORDS = "compare.html", "trace.parquet", "profile_export.jsonl"
# What may lie in a directory that --force replaces: what we and our exporters write, nothing else.
REPLACEABLE = frozenset({RESULT, CALLS, TIMELINE, REPORT, COMPARISON, TRACE, RECORDS})


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run read back: the object of result.json, and the calls."""

    result: Mapping[str, Any]
    calls: Calls


def write_run(
    result: RunResult,
    metrics: Summary,
    manifest: Mapping[str, Any],
    out_dir: Path,
    force: bool = False,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Write a run directory and return it.

    `metrics` is what `summarise(result, ...)` made. `finish` is called with the directory while it is still
    hidden: a report written there appears together with the rest. Raises RunError if `out_dir` may not
    be written.
    """
    from v4sim.timeline import timeline_json

    with new_directory(out_dir, force) as hidden:
        (hidden / RESULT).write_bytes(result_json(result_object(metrics, manifest)))
        write_calls(metrics.calls, metrics.trace, metrics.tasks.of_call, hidden / CALLS)
        timeline = timeline_json(metrics.calls, metrics.trace.session_names, result, metrics.steady)
        (hidden / TIMELINE).write_bytes(timeline)
        if finish is not None:
            finish(hidden)
    return out_dir


def result_object(metrics: Summary, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The object of result.json as it is written and printed."""
    found = plain({"schema_version": SCHEMA_VERSION, "manifest": manifest, **metrics.tree})
    assert isinstance(found, dict)
    return found


def read_run(run_dir: Path) -> StoredRun:
    """Read a run directory. Raises RunError when it is none, or of another schema."""
    path = run_dir / RESULT
    try:
        result = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(
            f"{run_dir} is not a run directory: it holds no {RESULT}. "
            "Give the directory that `v4sim replay TRACE -o DIR` wrote."
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read as JSON ({error}). Run `v4sim replay` again.") from None
    version = result.get("schema_version") if isinstance(result, dict) else None
    if version != SCHEMA_VERSION:
        raise RunError(
            f"{path}: schema_version is {version!r}, this v4sim reads {SCHEMA_VERSION}. "
            "Replay the trace with this version, or use the version that wrote the run."
        )
    return StoredRun(result, read_calls(run_dir / CALLS))


def check_target(out_dir: Path, force: bool) -> None:
    """Raise RunError unless a run may be written to `out_dir`; changes nothing.

    To be asked before a simulation starts, so that nobody waits for a refusal.
    """
    if out_dir.is_symlink() or (out_dir.exists() and not out_dir.is_dir()):
        raise RunError(f"{out_dir} is not a directory; name a directory that does not exist yet with -o.")
    if not out_dir.exists():
        _must_be_makeable(out_dir)
        return
    held = sorted(entry.name for entry in out_dir.iterdir())
    foreign = [name for name in held if name not in REPLACEABLE]
    if held and not force:
        raise RunError(
            f"{out_dir} already exists and is not overwritten. Use --force, or name another with -o."
        )
    if foreign or (held and RESULT not in held):
        why = f"it holds {foreign[0]!r}" if foreign else f"it holds no {RESULT}"
        raise RunError(
            f"{out_dir} is not replaced, because it is not a run directory ({why}); --force replaces "
            "run directories only. Name another directory with -o."
        )


def _must_be_makeable(out_dir: Path) -> None:
    above = next(folder for folder in out_dir.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "is not a directory" if not above.is_dir() else "may not be written"
        raise RunError(f"{out_dir} cannot be made: {above} {why}. Name another directory with -o.")


@contextmanager
def new_directory(out_dir: Path, force: bool) -> Iterator[Path]:
    """A hidden directory that becomes `out_dir` when the block ends well, and vanishes otherwise."""
    check_target(out_dir, force)
    target = out_dir.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = _make_sibling(target, "partial")
    except OSError as error:
        raise RunError(f"{out_dir} cannot be made ({error}). Name another directory with -o.") from None
    try:
        yield hidden
        check_target(out_dir, force)
        _take_name(hidden, target)
    finally:
        # After the rename there is nothing left under this name.
        shutil.rmtree(hidden, ignore_errors=True)


def _make_sibling(target: Path, kind: str) -> Path:
    for attempt in count():
        path = target.parent / f".{target.name}.{os.getpid()}-{attempt}.{kind}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def _take_name(hidden: Path, target: Path) -> None:
    """Rename, moving a directory of that name out of the way and back again if the rename fails."""
    if not target.exists():
        hidden.rename(target)
        return
    old = _make_sibling(target, "replaced")
    target.rename(old)  # onto an empty directory: allowed, and atomic
    try:
        hidden.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old)


def result_json(result: Mapping[str, Any]) -> bytes:
    """The bytes of a `result_object`: sorted keys, one line per top-level key."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True, allow_nan=False)}"
        for key, value in sorted(result.items())
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def plain(value: Any) -> Any:
    """`value` as JSON holds it: numpy and tuples unpacked, floats rounded, NaN and infinity to None."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.12g}") if math.isfinite(number) else None
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "iub" else [plain(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise RunError(f"a {type(value).__name__} cannot stand in {RESULT}; this is a defect of v4sim.")

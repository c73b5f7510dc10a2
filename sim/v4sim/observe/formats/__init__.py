"""Log files to calls seen: the format of each line is told by its keys, or named by the user.

Files, folders and archives, packed or not, as for `v4traces import`. Lines that are no JSON object of a known
format are refused with their place, but for a last line that was cut off; lines without a finished call are
counted. To add a format: a file beside this one with a `LogFormat`, and its name in `FORMATS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v4sim.errors import ConfigError
from v4sim.observe.formats.aiperf import AIPERF
from v4sim.observe.formats.base import LogFormat, Told
from v4sim.observe.formats.dynamo import DYNAMO
from v4sim.observe.formats.sglang import SGLANG
from v4sim.observe.formats.vllm import VLLM
from v4sim.observe.seen import Seen
from v4traces.sources import documents

FORMATS: Mapping[str, LogFormat] = {one.name: one for one in (SGLANG, VLLM, AIPERF, DYNAMO)}


@dataclass(frozen=True, slots=True)
class Log:
    """All calls of the logs, and the lines that held none."""

    seen: tuple[Seen, ...]
    formats: tuple[str, ...]  # in order of first appearance
    without_call: int  # errors, cancelled, tool events


def read_logs(paths: Iterable[Path], name: str | None = None) -> Log:
    """The calls in `paths`; `name` is a format of `FORMATS`, None tells it line by line."""
    if name is not None and name not in FORMATS:
        raise ConfigError(f"--format {name!r} is no log format; choose one of {', '.join(FORMATS)}.")
    seen: list[Seen] = []
    used: dict[str, None] = {}
    empty = 0
    for document in documents(paths):
        for line, where in _lines(document.data, document.name):
            found = FORMATS[name] if name is not None else _format_of(line, where)
            used[found.name] = None
            call = found.read(line, where)
            if call is None:
                empty += 1
            else:
                seen.append(call)
    if not seen:
        raise ConfigError(
            f"the logs hold no finished call ({empty} lines of other kinds); v4sim observe reads "
            + ", ".join(f"{one.name} ({one.what})" for one in FORMATS.values())
            + "."
        )
    return Log(tuple(seen), tuple(used), empty)


def written(calls: Sequence[Told], name: str) -> str:
    """The text of a log in one of the formats."""
    form = FORMATS[name]
    return "".join(json.dumps(form.write(call), sort_keys=True) + "\n" for call in calls)


def _lines(data: bytes, name: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    lines = data.split(b"\n")
    last = max((i for i, line in enumerate(lines) if line.strip()), default=-1)
    for i, raw in enumerate(lines):
        if not raw.strip():
            continue
        where = f"{name}:{i + 1}"
        try:
            line = json.loads(raw)
        except ValueError:
            if i == last and i > 0 and not data.endswith(b"\n"):
                return  # cut off while it was written
            raise ConfigError(
                f"{where} is not JSON. v4sim observe reads one JSON object a line; convert the log."
            ) from None
        if not isinstance(line, Mapping):
            raise ConfigError(
                f"{where} is a {type(line).__name__}, not an object. Write one response a line."
            )
        yield line, where


def _format_of(line: Mapping[str, Any], where: str) -> LogFormat:
    for form in FORMATS.values():
        if form.matches(line):
            return form
    keys = ", ".join(sorted(line)[:8]) or "none"
    raise ConfigError(
        f"{where} is of no known log format (its keys: {keys}). Known are "
        + ", ".join(f"{form.name} ({form.what})" for form in FORMATS.values())
        + "; --format names one."
    )

"""A target as calls to replay.

    closed_loop_*   `concurrency` clients, each sends its next request when the last one ended
    open_loop_*     requests arrive by a Poisson process of `request_rate`
    single          one request after another
    warm_turn       sessions that send the same prompt again, the first turn cold and not counted
    agent_trace     sessions whose prompts grow, reconstructed from the stated marginals

Where the notes say that the requests of a repetition start together, each repetition is a run of its own.
Lengths come from streams keyed by (seed, request), or from the client's own generator where that is known.
Long workloads are cut (`MAX_REQUESTS`), and the cut is said. Units: tokens.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from v4sim import streams
from v4sim.backtest.lengths import (
    OUTPUTS,
    PROMPTS,
    STANDARD,
    are_drawn,
    client_lengths,
    lengths_of,
    lognormal,
)
from v4sim.backtest.schema import Target, WorkloadRecord
from v4sim.errors import ConfigError
from v4sim.workload import WorkloadOptions
from v4traces import CallRow, TraceMetadata, TraceTable, TraceWriter

MAX_REQUESTS = 768
MAX_AGENT_REQUESTS = 400
DEFAULT_SINGLE_REPEATS = 3
_REPETITIONS = re.compile(r"(\d+) repetitions?")
_POOLED = re.compile(r"turns (\d+)-(\d+) of (\d+) sessions?")
_POINT_KEYS = {
    "context_tokens": "isl",
    "context_tokens_nominal": "isl",
    "isl": "isl",
    "osl": "osl",
    "concurrency": "concurrency",
    "num_requests": "num_requests",
    "request_rate": "request_rate",
}
# An agent session starts with this share of its final prompt (tools, instructions, first files).
_FIRST_PROMPT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """Calls, how they are sent, and which of them count. `repetitions`: runs of this load per seed."""

    table: TraceTable
    options: WorkloadOptions
    repetitions: int = 1
    first_turn: int = 0  # turns before it are not counted
    cut: bool = False  # shortened: rates are taken from the middle of the run
    together: bool = False
    random: bool = False  # another seed gives other lengths
    reconstructed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def longest_tokens(self) -> int:
        return int((self.table.prompt_tokens + self.table.output_tokens).max())


def at_point(target: Target, at: Mapping[str, Any] | None) -> WorkloadRecord:
    """The workload at the sub-point that a metric's `at` names."""
    changes: dict[str, Any] = {}
    for key, value in (at or {}).items():
        name = _POINT_KEYS.get(key)
        if name is not None:
            changes[name] = value
        elif not isinstance(value, str):
            raise ConfigError(f"at.{key} = {value!r}: known sub-points are {', '.join(_POINT_KEYS)}.")
    return target.workload.model_copy(update=changes)


def is_load(work: WorkloadRecord) -> bool:
    """Whether anything is sent: capacity is read from a start-up log."""
    return not (work.concurrency == 0 or work.num_requests == 0)


def build(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    """The calls of a workload; `max_context` clips nominal context labels."""
    for prefix, builder in _BUILDERS.items():
        if work.kind.startswith(prefix):
            return builder(work, max_context, seed)
    raise ConfigError(f"workload.kind {work.kind!r}: known kinds are {', '.join(_BUILDERS)}.")


def _closed(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    concurrency = work.concurrency
    if concurrency is None and work.num_requests == 1:
        concurrency = 1
    if concurrency is None:
        raise ConfigError("workload.concurrency is null: a closed loop needs it.")
    repeats = _REPETITIONS.search(work.notes)
    together = "start together" in work.notes or "simultaneous" in work.notes
    notes: list[str] = []
    wanted = work.num_requests
    if wanted is None:
        wanted = max(4 * concurrency, 16)
        notes.append(f"{wanted} requests")
    repetitions = 1
    if together:
        repetitions = int(repeats[1]) if repeats else max(wanted // concurrency, 1)
        wanted = max(wanted // repetitions, 1)
    rows, cut = _independent(work, wanted, max_context, seed, notes)
    options = WorkloadOptions(sessions=concurrency)
    return _load(
        rows,
        options,
        work,
        notes,
        repetitions=repetitions,
        together=together,
        cut=cut,
        random=are_drawn(work),
    )


def _open(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    if work.request_rate is None:
        if work.concurrency is None:
            raise ConfigError(
                "workload.request_rate and concurrency are null: an open loop needs requests per second."
            )
        found = _closed(work, max_context, seed)
        return replace(found, notes=(*found.notes, "requests without a rate, capped at the concurrency"))
    notes: list[str] = []
    rows, cut = _independent(work, work.num_requests or 256, max_context, seed, notes)
    options = WorkloadOptions(arrivals="poisson", rate_per_s=work.request_rate)
    return _load(rows, options, work, notes, cut=cut, random=True)


def _single(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    notes: list[str] = []
    count = min(work.num_requests or DEFAULT_SINGLE_REPEATS, DEFAULT_SINGLE_REPEATS)
    rows, _ = _independent(work, count, max_context, seed, notes)
    return _load(rows, WorkloadOptions(sessions=1), work, notes, random=are_drawn(work))


def _warm(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    notes: list[str] = []
    pooled = _POOLED.search(work.pooled) or _POOLED.search(work.notes)
    sessions = int(pooled[3]) if pooled else max(work.concurrency or 1, 1)
    turns = int(pooled[2]) if pooled else 1 + max((work.num_requests or 5) // sessions, 1)
    if pooled is None:
        notes.append(f"{sessions} sessions of {turns} turns")
    prompt, output = _fixed(work, max_context)
    cached = work.cached_tokens
    if cached is None:
        new = work.new_tokens if work.new_tokens is not None else prompt - round((work.reuse or 0) * prompt)
        cached = max(prompt - new, 0)
        notes.append(f"{cached} tokens of each warm prompt were sent before")
    rows = []
    for session in range(sessions):
        for turn in range(turns):
            link: dict[str, Any] = {}
            if turn:
                link = {"parent_session": f"s{session}", "parent_turn": turn - 1}
                link["shared_tokens"] = min(cached, prompt)
            rows.append(_row(f"s{session}", turn, prompt, output, **link))
    options = WorkloadOptions(sessions=max(work.concurrency or 1, 1))
    return _load(rows, options, work, notes, first_turn=1)


def _agents(work: WorkloadRecord, max_context: int, seed: int) -> Load:
    """Sessions whose prompts grow linearly; outputs log-normal with the stated median, p90 and mean."""
    if work.isl is None or work.osl is None or work.concurrency is None:
        raise ConfigError("an agent_trace needs workload.isl, osl and concurrency to be reconstructed.")
    reuse = min(max(work.reuse or 0.0, 0.0), 0.99)
    last = 2 * work.isl / (1 + _FIRST_PROMPT_SHARE)
    turns = max(round(2 / ((1 + _FIRST_PROMPT_SHARE) * (1 - reuse))), 1)
    wanted = work.num_requests or MAX_AGENT_REQUESTS
    count = min(wanted, max(MAX_AGENT_REQUESTS, 4 * work.concurrency))
    sigma, cap = lognormal(float(work.osl), work.osl_mean, work.osl_p90)
    key = streams.mix(seed, streams.WORKLOAD, OUTPUTS)
    rows: list[CallRow] = []
    session = 0
    while len(rows) < count:
        # Sessions that are alive at the start are anywhere in their life.
        first = session % turns if session < work.concurrency else 0
        for turn in range(first, turns):
            share = turn / (turns - 1) if turns > 1 else 1.0
            luck = streams.uniform(key, len(rows))
            output = round(
                min(work.osl * math.exp(sigma * STANDARD.inv_cdf(min(max(luck, 1e-12), 1 - 1e-12))), cap)
            )
            prompt = round(last * (_FIRST_PROMPT_SHARE + (1 - _FIRST_PROMPT_SHARE) * share))
            output = max(min(output, max_context // 2), 1)
            prompt = min(prompt, max_context - output - 1)
            link: dict[str, Any] = {}
            if turn > first:
                link = {"parent_session": f"s{session}", "parent_turn": turn - first - 1}
                link["shared_tokens"] = min(rows[-1].prompt_tokens, prompt)
            rows.append(_row(f"s{session}", turn - first, prompt, output, **link))
        session += 1
    notes = [
        f"sessions of {turns} turns that grow to {round(last)} tokens, outputs log-normal (sigma "
        f"{sigma:.2f}) below {cap:.0f}"
    ]
    cut = len(rows) < wanted
    if cut:
        notes.append(f"{len(rows)} of {wanted} requests")
    options = WorkloadOptions(sessions=work.concurrency)
    return _load(rows, options, work, notes, cut=cut, random=True, reconstructed=True)


_BUILDERS: dict[str, Callable[[WorkloadRecord, int, int], Load]] = {
    "closed_loop": _closed,
    "open_loop": _open,
    "single": _single,
    "warm_turn": _warm,
    "agent_trace": _agents,
}


def _independent(
    work: WorkloadRecord, count: int, max_context: int, seed: int, notes: list[str]
) -> tuple[list[CallRow], bool]:
    """Requests that share nothing, or a common prefix of `reuse` of the prompt."""
    kept = min(count, max(MAX_REQUESTS, 3 * (work.concurrency or 1)))
    if kept < count:
        notes.append(f"{kept} of {count} requests")
    lengths = work.length_model
    drawn = client_lengths(work, count)
    if drawn is not None:
        prompts, outputs = drawn[0][:kept], drawn[1][:kept]
    else:
        prompts = lengths_of(lengths.isl if lengths else None, work.isl, kept, seed, PROMPTS, "isl", notes)
        outputs = lengths_of(lengths.osl if lengths else None, work.osl, kept, seed, OUTPUTS, "osl", notes)
    rows = []
    for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        clipped = min(prompt, max_context - output - 1)
        if clipped < prompt and f"prompt {clipped}" not in " ".join(notes):
            notes.append(f"prompt {clipped}, what the context limit leaves of {prompt}")
        group: dict[str, Any] = {}
        if work.reuse:
            group = {"group_id": "all", "group_tokens": round(work.reuse * clipped)}
        rows.append(_row(f"r{number}", 0, clipped, output, **group))
    return rows, kept < count


def _fixed(work: WorkloadRecord, max_context: int) -> tuple[int, int]:
    if work.isl is None:
        raise ConfigError("workload.isl is null.")
    output = work.osl or 1
    return min(work.isl, max_context - output - 1), output


def _row(session: str, turn: int, prompt: int, output: int, **link: Any) -> CallRow:
    return CallRow(
        session_id=session,
        turn=turn,
        prompt_tokens=max(prompt, 1),
        output_tokens=output,
        max_output_tokens=output,
        **link,
    )


def _load(
    rows: list[CallRow], options: WorkloadOptions, work: WorkloadRecord, notes: list[str], **what: Any
) -> Load:
    with tempfile.TemporaryDirectory() as folder:
        writer = TraceWriter(Path(folder) / "target.parquet", TraceMetadata("backtest", "synthetic"))
        with writer:
            writer.append(rows)
    assert writer.table is not None
    table = replace(writer.table, path="target")
    return Load(table, options, notes=tuple(notes), **what)

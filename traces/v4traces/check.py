"""All findings about a trace: broken laws first, then what a user should know before trusting it.

Warnings are about what makes results mislead without breaking a law: prompts that are sent again
whole (a "cold" run that is warm), prefixes that break at one place over and over (something that
changes stands there), pauses that dwarf everything, prefixes that are guessed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v4traces.bounds import lost_tokens, previous_in_session, scoped_bound_tokens
from v4traces.laws import Finding, broken_laws
from v4traces.table import TraceTable

# A break is worth a word when this much of the previous prompt has to be computed again,
_LEAST_LOST_TOKENS = 1024
# and is systematic when this share of the calls that could have extended their session break there.
_SYSTEMATIC = 0.1
_LONG_DELAY_S = 3600.0


def check_trace(table: TraceTable) -> list[Finding]:
    """Findings of severity "error" (a broken law) and "warning" (legal, but suspicious)."""
    errors = list(broken_laws(table))
    if errors:
        return errors
    return [finding for warn in _WARNINGS for finding in warn(table)]


def _repeated_prompts(table: TraceTable) -> Iterator[Finding]:
    """Sessions that begin with a prompt which an earlier session has sent already."""
    first = table.is_first_of_session()
    rows = np.flatnonzero(first & (table.parent >= 0) & (table.shared_tokens == table.prompt_tokens))
    if rows.size == 0:
        return
    row = int(rows[0])
    share = table.prompt_tokens[rows].sum() / table.prompt_tokens[first].sum()
    yield Finding(
        "warning",
        "cold_prompts_repeat",
        f"{rows.size} of {int(first.sum())} sessions begin with a prompt that an earlier call has sent whole"
        f" ({share:.1%} of the tokens of first prompts); the first is {table.label(row)}, which repeats"
        f" {table.label(int(table.parent[row]))}. If these are meant to be cold, a prefix cache makes them"
        " warm and throughput looks better than it is: drop the copies, or say that the run is warm.",
        row=row,
        column="shared_tokens",
        count=int(rows.size),
    )


def _breaking_prefixes(table: TraceTable) -> Iterator[Finding]:
    """Prompts of one session that stop repeating their predecessor at the same place, again and again."""
    previous = previous_in_session(table)
    bound = scoped_bound_tokens(table, table.session)
    lost = lost_tokens(table, bound, previous)
    broken = np.flatnonzero(lost >= _LEAST_LOST_TOKENS)
    if broken.size == 0:
        return
    places, which, counts = np.unique(bound[broken], return_inverse=True, return_counts=True)
    worst = int(np.argmax(counts))
    here = broken[which == worst]
    if here.size < max(2.0, _SYSTEMATIC * np.count_nonzero(previous >= 0)):
        return
    row, tokens, block = int(here[0]), int(places[worst]), table.metadata.block_tokens
    place = f"block {tokens // block} (token {tokens})" if block else f"token {tokens}"
    yield Finding(
        "warning",
        "prefixes_break_at_one_place",
        f"{here.size} calls stop repeating the prompt before them at {place}; the first is"
        f" {table.label(row)}, which loses {int(lost[row])} tokens, all of them together"
        f" {int(lost[here].sum())}. Something that changes from call to call stands there, such as a time"
        " stamp in the system prompt: move it to the end of the prompt.",
        row=row,
        column="shared_tokens",
        count=int(here.size),
    )


def _long_delays(table: TraceTable) -> Iterator[Finding]:
    """Pauses of hours. Nothing is capped, so they decide how long a run lasts."""
    rows = np.flatnonzero(table.delay_s > _LONG_DELAY_S)
    if rows.size == 0:
        return
    row = int(rows[np.argmax(table.delay_s[rows])])
    share = table.delay_s[rows].sum() / table.delay_s.sum()
    yield Finding(
        "warning",
        "delays_of_hours",
        f"{rows.size} delays are above an hour and make up {share:.0%} of all delay time; the longest,"
        f" {table.delay_s[row]:,.0f} s, is at {table.label(row)}. No delay is capped: a cap has to be asked"
        " for, and changes what stays in the cache.",
        row=row,
        column="delay_s",
        count=int(rows.size),
    )


def _guessed_prefixes(table: TraceTable) -> Iterator[Finding]:
    if table.metadata.trace_class == "count_derived":
        yield Finding(
            "warning",
            "prefixes_are_guessed",
            "shared lengths of this trace come from token counts, not from hashes. They say what a provider"
            " reported as cached, expiry included, not what could be reused: do not read the hit bound as"
            " truth.",
        )


_WARNINGS = (_repeated_prompts, _breaking_prefixes, _long_delays, _guessed_prefixes)

"""Conservation and clocks: what calls say about each other and about the trace (laws 1 and 2).

Units: integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v4sim.laws.base import Check, Evidence, broken, whole_run
from v4sim.metrics.calls import DONE, Int64s
from v4traces.laws import Finding

MOMENTS = ("ready_ns", "sent_ns", "queued_ns", "admit_ns", "first_token_ns", "last_token_ns")


def known_outcome(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    unknown = ~np.isin(
        calls.done.codes, [calls.done.names.index(name) for name in DONE if name in calls.done.names]
    )
    texts = calls.done
    yield from broken(
        evidence,
        "1 conservation",
        unknown,
        lambda i: f"it ended as {texts.names[texts.codes[i]]!r}, which is none of {', '.join(DONE)}",
        "done",
    )


def outcome_fits_moments(evidence: Evidence) -> Iterator[Finding]:
    """Where a call stands at the end must follow from the moments it reached."""
    calls = evidence.calls
    admitted, ended = calls.admitted, calls["last_token_ns"] >= 0
    waits = np.zeros(len(calls), dtype=np.bool_)
    for name, must, never in (
        ("completed", admitted & ended & (calls["first_token_ns"] >= 0), waits),
        ("running", admitted, ended),
        ("rejected", ~admitted, ended),
        ("aborted", ~waits, ended),
        ("queued", ~waits, ended),
    ):
        wrong = calls.done.equals(name) & (~must | never)
        yield from broken(
            evidence,
            "1 conservation",
            wrong,
            lambda i, name=name: (  # type: ignore[misc]  # mypy does not infer a lambda with a default
                f"it counts as {name}, but was admitted at {calls['admit_ns'][i]} ns, had its first token at "
                f"{calls['first_token_ns'][i]} ns and its last at {calls['last_token_ns'][i]} ns"
            ),
            "done",
        )


def sent_once(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    codes, _ = calls.dense("row", "instance")
    repeated = np.ones(len(calls), dtype=np.bool_)
    repeated[np.unique(codes, return_index=True)[1]] = False
    yield from broken(evidence, "1 conservation", repeated, lambda i: "it was injected before", "row")


def moments_ascend(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    latest = np.full(len(calls), -1, dtype=np.int64)
    for name in MOMENTS:
        yield from _not_before(evidence, name, latest)
        latest = np.maximum(latest, calls[name])
    end = int(evidence.result.end_ns)
    yield from broken(
        evidence,
        "2 clocks",
        latest > end,
        lambda i: f"it reaches {latest[i]} ns, after the run's end at {end} ns",
    )


def _not_before(evidence: Evidence, name: str, latest: Int64s) -> Iterator[Finding]:
    moment = evidence.calls[name]
    yield from broken(
        evidence,
        "2 clocks",
        (moment >= 0) & (moment < latest),
        lambda i: f"{name} is {moment[i]}, but an earlier moment of the call is {latest[i]}",
        name,
    )


def seen_after_it_is_out(evidence: Evidence) -> Iterator[Finding]:
    """A client sees a first token when it is out of the engine or later, and sees none that never was."""
    calls = evidence.calls
    out, seen = calls["first_token_ns"], calls["first_seen_ns"]
    yield from broken(
        evidence,
        "2 clocks",
        np.where(out >= 0, seen < out, seen >= 0),
        lambda i: f"first_seen_ns is {seen[i]}, but its first token left the engine at {out[i]}",
        "first_seen_ns",
    )


def waits_for_dependencies(evidence: Evidence) -> Iterator[Finding]:
    """A call is ready at the moment the last of the calls it waits for has ended.

    Refused and cut-off calls end too, at a moment that no column states: then ready is only not earlier.
    """
    calls, trace = evidence.calls, evidence.trace
    counts = evidence.at_row(np.diff(trace.after_offsets))
    owner = np.repeat(np.arange(len(calls)), counts)
    starts = evidence.at_row(trace.after_offsets[:-1])
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    target = calls.find(trace.after_rows[np.repeat(starts, counts) + within], calls["instance"][owner])
    failed = calls.done.equals("rejected") | calls.done.equals("aborted")
    too_early, inexact = np.zeros((2, len(calls)), dtype=np.bool_)
    too_early[owner[(target < 0) | ~(calls.completed | failed)[target]]] = True
    inexact[owner[failed[target]]] = True
    yield from broken(
        evidence,
        "2 clocks",
        too_early,
        lambda i: "it was sent although a call that it waits for did not end",
        "ready_ns",
    )
    ended = np.full(len(calls), -1, dtype=np.int64)
    np.maximum.at(ended, owner, calls["last_token_ns"][target])
    ready = calls["ready_ns"]
    wrong = (counts > 0) & ~too_early & np.where(inexact, ready < ended, ready != ended)
    yield from broken(
        evidence,
        "2 clocks",
        wrong,
        lambda i: f"ready_ns is {ready[i]}, but the calls that it waits for ended at {ended[i]}",
        "ready_ns",
    )


def waits_for_its_delay(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    delay = np.rint(evidence.at_row(evidence.trace.delay_s) * evidence.time_scale * 1e9).astype(np.int64)
    waited = calls["sent_ns"] - calls["ready_ns"]
    yield from broken(
        evidence,
        "2 clocks",
        waited != delay,
        lambda i: f"it was sent {waited[i]} ns after it was ready, but its delay is {delay[i]} ns",
        "sent_ns",
    )


def queues_match_calls(evidence: Evidence) -> Iterator[Finding]:
    """At every sampled moment the engine holds exactly the calls that have come and not gone.

    A finished call may stay for the step that was launched before its result was known; a call that was
    refused or cut off left at a moment that no column states. So the engine's number lies between the calls
    that surely are there and those that may be.
    """
    calls, result = evidence.calls, evidence.result
    times = result.series["t_ns"]
    if not len(times):
        return
    held = (result.series["running"] + result.series["queued"]).sum(axis=1)
    came = np.sort(calls["queued_ns"][calls["queued_ns"] >= 0])
    ended = np.sort(calls["last_token_ns"][calls.completed])
    failed = calls.done.equals("rejected") | calls.done.equals("aborted")
    refused = np.sort(calls["queued_ns"][failed & (calls["queued_ns"] >= 0)])
    longest_step = max(histogram.max for histogram in result.steps.durations.values())
    surely = (
        np.searchsorted(came, times, side="left")
        - np.searchsorted(ended, times, side="right")
        - np.searchsorted(refused, times, side="left")
    )
    at_most = np.searchsorted(came, times, side="right") - np.searchsorted(
        ended, times - longest_step, side="left"
    )
    wrong = (held < surely) | (held > at_most)
    if wrong.any():
        i = int(np.argmax(wrong))
        yield whole_run(
            "1 conservation",
            f"at {int(times[i])} ns the engine holds {int(held[i])} calls, but by their own moments between "
            f"{int(surely[i])} and {int(at_most[i])} are there ({int(wrong.sum())} of {len(times)} samples)",
        )


LAWS: tuple[Check, ...] = (
    known_outcome,
    outcome_fits_moments,
    sent_once,
    queues_match_calls,
    moments_ascend,
    seen_after_it_is_out,
    waits_for_dependencies,
    waits_for_its_delay,
)

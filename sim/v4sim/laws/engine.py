"""Time and work: engine totals against calls (laws 6 to 10).

The engine counts steps, tokens and gaps while it runs; the calls say what became of each. These laws
hold the two against each other.
Units: integer nanoseconds, tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v4sim.cost.base import PARTS
from v4sim.laws.base import Check, Evidence, broken, whole_run
from v4traces.laws import Finding

WAITS = ("wait_queue_ns", "wait_kv_ns", "wait_swa_ns", "wait_slots_ns", "wait_budget_ns")


def parts_sum_to_steps(evidence: Evidence) -> Iterator[Finding]:
    steps = evidence.result.steps
    for kind, parts in steps.parts_ns.items():
        total, durations = int(parts.sum()), steps.durations[kind]
        if len(parts) != len(PARTS) or int(parts.min()) < 0:
            yield whole_run(
                "6 parts", f"{kind} steps have parts {parts.tolist()}; {len(PARTS)} times >= 0 are due"
            )
        if total != durations.total_ns or steps.counts[kind] != durations.count:
            yield whole_run(
                "6 parts",
                f"the parts of {steps.counts[kind]} {kind} steps sum to {total} ns, but "
                f"{durations.count} steps last {durations.total_ns} ns",
            )
    if steps.total_ns != evidence.result.stepped_ns:
        yield whole_run(
            "6 parts",
            f"all parts sum to {steps.total_ns} ns, but replicas stepped {evidence.result.stepped_ns} ns",
        )


def ranks_share_the_clock(evidence: Evidence) -> Iterator[Finding]:
    """Lockstep: every rank of a replica is busy or idle in each of its steps, for all of the step."""
    result = evidence.result
    stepped: dict[int, int] = {}
    for rank in result.ranks:
        first = stepped.setdefault(rank.replica, rank.stepped_ns)
        if rank.stepped_ns != first or rank.busy_ns < 0 or rank.idle_ns < 0:
            yield whole_run(
                "7 work",
                f"rank {rank.rank} of replica {rank.replica} was busy {rank.busy_ns} and idle {rank.idle_ns} "
                f"ns, but its replica stepped {first} ns",
            )
    if sum(stepped.values()) != result.stepped_ns:
        yield whole_run(
            "7 work", f"ranks stepped {sum(stepped.values())} ns, replicas {result.stepped_ns} ns"
        )
    if any(time > result.end_ns for time in stepped.values()):
        yield whole_run("2 clocks", f"a replica stepped for longer than the run lasted ({result.end_ns} ns)")


def shares_fit_steps(evidence: Evidence) -> Iterator[Finding]:
    """Calls are given no more step time than passed, and no call more than it was there."""
    calls, result = evidence.calls, evidence.result
    shares = calls["gpu_share_ns"]
    given = int(np.clip(shares, 0, None).sum())
    if given > result.stepped_ns:
        yield whole_run(
            "6 parts", f"calls are given {given} ns of step time, but only {result.stepped_ns} passed"
        )
    there = calls["last_token_ns"] - calls["admit_ns"]
    yield from broken(
        evidence,
        "6 parts",
        (shares < 0) | (calls.completed & (shares > there)),
        lambda i: f"it is given {shares[i]} ns of step time, but was there for {there[i]} ns",
        "gpu_share_ns",
    )


def computed_tokens_match(evidence: Evidence) -> Iterator[Finding]:
    """What ranks computed in prefill is what their calls asked for, where every call completed unhindered."""
    calls, result = evidence.calls, evidence.result
    if not calls.completed.all() or int(calls["retractions"].sum()):
        return
    asked = int((calls["computed_tokens"] + calls["recomputed_tokens"]).sum())
    computed = sum(rank.prefill_tokens for rank in result.ranks)
    if asked != computed:
        yield whole_run("7 work", f"ranks computed {computed} prompt tokens, but calls needed {asked}")


def waits_fit_queueing(evidence: Evidence) -> Iterator[Finding]:
    """A call that never queued twice waited, by reasons, exactly from reaching its replica to admission."""
    calls = evidence.calls
    waited = np.sum([calls[name] for name in WAITS], axis=0)
    queued = calls["admit_ns"] - calls["queued_ns"]
    once = calls.admitted & (calls["retractions"] == 0)
    yield from broken(
        evidence,
        "7 work",
        once & (waited != queued),
        lambda i: f"its waits sum to {waited[i]} ns, but it queued for {queued[i]} ns",
        "wait_queue_ns",
    )


def littles_law(evidence: Evidence) -> Iterator[Finding]:
    """Calls in the system, summed over time from the engine's queues, against time in it, summed over calls.

    The engine samples its queues at every admission and release, so between two samples only arrivals
    change them. Long runs keep every n-th sample; there the law is not asked.
    """
    calls, result = evidence.calls, evidence.result
    times = result.series["t_ns"]
    arrivals = calls["queued_ns"]
    if not calls.completed.all() or len(times) < 2 * len(calls) + int(calls["retractions"].sum()):
        return
    held = (result.series["running"] + result.series["queued"]).sum(axis=1)
    next_sample = times[np.minimum(np.searchsorted(times, arrivals, side="left"), len(times) - 1)]
    in_queues = int((held[:-1] * np.diff(times)).sum()) + int((next_sample - arrivals).sum())
    in_calls = int((calls["last_token_ns"] - arrivals).sum())
    # A finished call may stay for one more step.
    slack = len(calls) * max(histogram.max for histogram in result.steps.durations.values())
    if not 0 <= in_queues - in_calls <= slack:
        yield whole_run(
            "9 Little's law",
            f"the engine's queues sum to {in_queues} call-ns over time, the calls' own times to {in_calls}; "
            f"the first may be larger by at most {slack}",
        )


def gaps_sum_to_decode_time(evidence: Evidence) -> Iterator[Finding]:
    """Gaps sum to first-to-last times, and there is one per token after the first.

    SGLang's overlap computes again what is in flight when a call is retracted: a step's tokens, twice.
    """
    calls, result = evidence.calls, evidence.result
    if not calls.completed.all():
        return  # tokens of calls that did not end are in the gaps, but in no call
    decode_ns = int((calls["last_token_ns"] - calls["first_token_ns"]).sum())
    tokens = int((calls["output_tokens"] - 1).sum())
    engine, twice = evidence.deployment.engine, 0
    if engine.kind == "sglang" and engine.overlap:
        twice = int(calls["retractions"].sum()) * evidence.deployment.verify_width
    burst, divided = result.itl_burst, result.itl_divided
    if burst.total_ns != decode_ns:
        yield whole_run(
            "8 inter-token", f"bursts sum to {burst.total_ns} ns, first-to-last times to {decode_ns}"
        )
    # Dividing a gap over its tokens rounds down, by less than one ns per token.
    if not burst.total_ns - tokens - twice <= divided.total_ns <= burst.total_ns:
        yield whole_run(
            "8 inter-token", f"divided gaps sum to {divided.total_ns} ns, bursts to {burst.total_ns}"
        )
    if not tokens <= divided.count <= tokens + twice or burst.count > divided.count:
        yield whole_run(
            "8 inter-token",
            f"{divided.count} divided gaps and {burst.count} bursts for {tokens} tokens after a first",
        )


def drafts_are_plausible(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.calls
    section = evidence.deployment.speculation
    drafts = section.draft_tokens if section.kind != "off" else 0
    accepted, offered, steps = calls["drafts_accepted"], calls["drafts_offered"], calls["verify_steps"]
    yield from broken(
        evidence,
        "10 speculation",
        (accepted < 0) | (accepted > offered) | (offered > steps * drafts),
        lambda i: (
            f"{accepted[i]} of {offered[i]} drafts were accepted in {steps[i]} verify steps of {drafts}"
        ),
        "drafts_accepted",
    )
    tokens = calls["output_tokens"] - 1
    # Every stay in decode, one more after each retraction, starts with a token of its own prefill.
    most = steps * (drafts + 1) + calls["retractions"]
    yield from broken(
        evidence,
        "10 speculation",
        calls.completed & ((tokens > most) | (steps > tokens)),
        lambda i: (
            f"{tokens[i]} tokens after the first came from {steps[i]} verify steps of at most {drafts + 1}"
        ),
        "verify_steps",
    )
    for phase, (asked, taken) in sorted(evidence.result.acceptance.items()):
        if any(not 0 <= t <= a for a, t in zip(asked, taken, strict=True)):
            yield whole_run(
                "10 speculation", f"phase {phase!r}: offered {asked}, accepted {taken} by position"
            )


LAWS: tuple[Check, ...] = (
    parts_sum_to_steps,
    ranks_share_the_clock,
    shares_fit_steps,
    computed_tokens_match,
    waits_fit_queueing,
    littles_law,
    gaps_sum_to_decode_time,
    drafts_are_plausible,
)

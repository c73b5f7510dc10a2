"""Scripts that Hypothesis draws: any options with any structure, with a taste for the edges.

Where `generate` strains one thing at a time, these mix everything: page boundaries, forks, resends, pools
that barely hold the longest call, thresholds, drafts, priorities. Recorded with seed and version, so that
the same scripts come out again.

Causal: a prompt holds another call's output only if it is sent after that call's end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from oracle.script import Script, ScriptCall

PAGE = 16
SEED = 20261130
_SOON = st.sampled_from([0, 0, 1, 2, 9])


class Drawn(NamedTuple):
    options: dict[str, Any]
    calls: tuple[ScriptCall, ...]


def scripts(engine: str, count: int, number: int = SEED) -> list[Script]:
    """`count` different scripts for this engine from a seed; none where its options have no strategy."""
    if engine not in OPTIONS:
        return []
    found: dict[str, Script] = {}

    @seed(number)
    @settings(
        max_examples=4 * count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_script(engine))
    def collect(drawn: Drawn) -> None:
        name = f"drawn-{len(found):03d}"
        found.setdefault(repr(drawn), Script(name, "drawn", engine, drawn.options, drawn.calls))

    collect()
    return list(found.values())[:count]


@st.composite
def _script(draw: st.DrawFn, engine: str) -> Drawn:
    calls = draw(_calls())
    options = draw(OPTIONS[engine]())
    if draw(st.integers(0, 6)) == 0:
        calls = tuple(_with_priority(call, draw(st.sampled_from([0, 0, 1, 2]))) for call in calls)
        if engine == "sglang":
            options["priority"] = True
    # The longest call fits, with what drafts ask for beyond it; beside it, little or much.
    most = max(call.prompt + call.limit for call in calls) + 4 * (1 + options.get("draft_tokens", 0))
    most += draw(st.sampled_from([0, 16, 48, 120, 300, 2_000, 20_000]))
    options["kv_tokens"] = -(-most // PAGE) * PAGE
    return Drawn(options, calls)


@st.composite
def _calls(draw: st.DrawFn) -> tuple[ScriptCall, ...]:
    calls: list[ScriptCall] = []
    plain: list[int] = []  # leading tokens of each prompt that are nobody's output
    for _ in range(draw(st.integers(3, 16))):
        output = draw(st.sampled_from([1, 2]) | st.integers(1, 20) | st.integers(20, 120))
        limit = output + draw(st.sampled_from([0, 0, 1, 40]))
        own = draw(
            st.sampled_from([1, 2, PAGE - 1, PAGE, PAGE + 1])
            | st.integers(1, 300)
            | st.integers(1, 12).map(lambda pages: PAGE * pages)
            | st.integers(1, 12).map(lambda pages: PAGE * pages + 1)
        )
        how = draw(st.sampled_from(["new", "resend", "fork", "turn", "turn"])) if calls else "new"
        if how == "new":
            calls.append(ScriptCall(own, output, limit, at=draw(st.integers(0, 40))))
            plain.append(own)
            continue
        number = draw(st.integers(0, len(calls) - 1))
        parent = calls[number]
        keep, also = parent.prompt, 0
        if how == "fork":
            keep = draw(st.sampled_from([keep, max(1, keep // PAGE * PAGE)]) | st.integers(1, parent.prompt))
        elif how == "turn":
            also = draw(st.just(parent.output) | st.integers(0, parent.output))
        early = how != "turn" and keep <= plain[number] and draw(st.booleans())
        calls.append(
            ScriptCall(
                keep if how == "resend" else keep + also + own,
                output,
                limit,
                at=draw(st.integers(0, 40)) if early else None,
                after=None if early else number,
                delay=0 if early else draw(_SOON),
                parent=number,
                shared=keep,
                shared_output=also,
            )
        )
        whole = keep <= plain[number] and not also
        plain.append(calls[-1].prompt if whole else min(keep, plain[number]))
    return tuple(calls)


def _with_priority(call: ScriptCall, priority: int) -> ScriptCall:
    return ScriptCall(**{**{key: getattr(call, key) for key in call.__slots__}, "priority": priority})


@st.composite
def _vllm(draw: st.DrawFn) -> dict[str, Any]:
    drafts, rows = draw(st.sampled_from([0, 0, 1, 3])), draw(st.sampled_from([1, 2, 4, 32]))
    options: dict[str, Any] = {
        "page_tokens": PAGE,
        "async_scheduling": draw(st.booleans()),
        "max_num_seqs": rows,
        "max_batched_tokens": max(draw(st.sampled_from([32, 64, 128, 512])), rows * (1 + drafts)),
    }
    if drafts:
        options |= {"draft_tokens": drafts, "speculation": draw(st.sampled_from(["mtp", "dspark"]))}
    rare = {
        "long_prefill_token_threshold": st.sampled_from([16, 40, 64]),
        "reserve_full_isl": st.just(False),
        "watermark": st.sampled_from([0.05, 0.1]),
        "prefix_cache": st.just(False),
        "prefill_schedule_interval": st.sampled_from([2, 3, 8]),
    }
    for (key, values), odds in zip(rare.items(), (4, 2, 4, 10, 5), strict=True):
        if draw(st.integers(1, odds)) == 1:
            options[key] = draw(values)
    if "prefill_schedule_interval" in options and draw(st.booleans()):
        options["shares_cadence"] = True
    return options


@st.composite
def _sglang(draw: st.DrawFn) -> dict[str, Any]:
    options: dict[str, Any] = {
        "page_tokens": PAGE,
        "window_tokens": PAGE // 2,
        "swa_tokens": 64 * 1024,
        "slots": draw(st.sampled_from([1, 2, 4, 32])),
        "chunk_tokens": draw(st.sampled_from([None, 16, 48, 64, 128, 512])),
        "max_prefill_tokens": draw(st.sampled_from([64, 1024])),
        "clip_max_new_tokens": draw(st.sampled_from([32, 256])),
        "conservativeness": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "overlap": draw(st.booleans()),
    }
    rare = {
        "mixed_chunk": st.just(True),
        "prefill_decode_interval": st.sampled_from([1, 3]),
        "prefill_max_requests": st.sampled_from([1, 2]),
        "schedule_policy": st.just("lpm"),
        "prefix_cache": st.just(False),
    }
    for (key, values), odds in zip(rare.items(), (6, 6, 8, 8, 10), strict=True):
        if draw(st.integers(1, odds)) == 1:
            options[key] = draw(values)
    if not options.get("mixed_chunk") and draw(st.integers(1, 3)) == 1:
        options["draft_tokens"] = draw(st.sampled_from([1, 3]))
    return options


OPTIONS = {"vllm": _vllm, "sglang": _sglang}

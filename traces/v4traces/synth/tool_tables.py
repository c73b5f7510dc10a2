"""Measured numbers about tools, output phases and sub-agents. Marks [T], [W], [C], [A] as in `tables.py`.

Units: tokens, seconds, shares.
"""

from __future__ import annotations

from typing import NamedTuple

from v4traces.synth.quantiles import quantiles

# --- Tool latency, all tools. Shares below 1, 10 and 60 s (61, 88, 96 %), median 0.129 s and the means of
# those bins (0.5, 4, 11, 85 % of all tool time) from TraceLab [T]; p99 of shell commands 235 s [T].
# The atom: agentcgroup's p99 of all tools is exactly its shell timeout of 120 s [T]. A client's gap is
# never shorter than the tool's latency: see `tools.py`.
TIMEOUT_S = 120.0
TOOL_LATENCY_S = quantiles(
    "p0 0.004, p10 0.012, p25 0.033, p40 0.072, p50 0.129, p56 0.38, p61 1, p70 1.5, p80 2.8, p88 10, "
    "p92 16, p96 60, p97 120, p98 120, p98.5 200, p99 360, p99.5 880, p99.9 2000, p100 14000"
)
# Ranks of gap and latency fall into the same one of these bands and are independent within it [A]. In each
# band the slowest tool is faster than the shortest gap.
LATENCY_BANDS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0)


class LatencyClasses(NamedTuple):
    """Which tools take up to `below_s` seconds: shares that sum to 1."""

    below_s: float
    shares: tuple[tuple[str, float], ...]


# Chosen so that medians come out near the published ones: Read 0.04 s, Edit 0.04–0.1 s, planning
# 0.07 s, shell 0.41–0.94 s; only shell commands time out [T]. The share of each class is an outcome [A].
CLASSES_BY_LATENCY = (
    LatencyClasses(0.1, (("read", 0.36), ("shell", 0.28), ("edit", 0.21), ("plan", 0.08), ("search", 0.07))),
    LatencyClasses(1.0, (("shell", 0.80), ("edit", 0.08), ("read", 0.06), ("search", 0.04), ("web", 0.02))),
    LatencyClasses(10.0, (("shell", 0.57), ("search", 0.13), ("web", 0.12), ("edit", 0.10), ("read", 0.08))),
    LatencyClasses(60.0, (("shell", 0.75), ("web", 0.15), ("edit", 0.05), ("search", 0.05))),
    LatencyClasses(float("inf"), (("shell", 0.85), ("edit", 0.07), ("web", 0.04), ("plan", 0.04))),
)

# --- Phases. Which parts an output has, by its length [W] (types of content are recorded, their lengths
# are not). R reasoning, P prose, T tool call; every output before a tool_result calls a tool.
OUTPUT_BANDS = (104, 138, 217, 429, 894)
SHAPES = ("T", "PT", "RT", "RPT")
SHAPES_BEFORE_TOOL = (
    (0.578, 0.284, 0.133, 0.005),
    (0.319, 0.365, 0.289, 0.027),
    (0.169, 0.389, 0.314, 0.128),
    (0.129, 0.363, 0.261, 0.247),
    (0.089, 0.339, 0.212, 0.360),
    (0.063, 0.398, 0.155, 0.384),
)
# Share with reasoning among outputs that end a turn (P or RP) [W].
REASONING_BEFORE_USER = (0.07, 0.17, 0.23, 0.29, 0.47, 0.60)
# Mean share of each part of an output that has it [A]; a split varies between half and one and a half
# times that before it is scaled to the whole.
SPLIT = {"R": 0.45, "P": 0.18, "T": 0.45}
# Of a tool call that writes (`edit`, or longer than LONG_CALL tokens), all but the frame is code [A].
CALL_FRAME_TOKENS, LONG_CALL_TOKENS = 60, 300
# The first part of the output after a failed tool repairs: always after a timeout, else this often [A].
RECOVERY_SHARE = 0.05

# --- Sub-agents: 63 markers in 17 of 692 sessions [T]. In 485 files [W]: 41 started from 23 calls (1, 2 or 3
# at a time: 12, 4, 7), 10 % in the background, 11 calls at the median, never a prefix of the parent's.
SUBAGENT_SESSION_SHARE = 17 / 692
SPAWN_POINTS = quantiles("p0 0.5, p50 1.5, p75 2.5, p90 4.5, p100 6.5")
SPAWN_WIDTH = ((1, 12 / 23), (2, 16 / 23), (3, 1.0))  # cumulative
BACKGROUND_SHARE = 0.10
BACKGROUND_JOIN_CALLS = 8  # later, at most [A]: the files do not say where a background result arrives
SUBAGENT_KINDS = (("explore", 55 / 63), ("general", 61 / 63), ("plan", 1.0))  # cumulative
SUBAGENT_PREFIX_TOKENS = {"explore": 8900, "general": 9350, "plan": 9900}  # tools + system prompt [W]
SUBAGENT_CALLS = quantiles(
    "p0 4, p10 6, p20 7, p30 8, p40 10, p50 11, p60 12, p70 13, p80 15, p90 18, p100 24"
)
SUBAGENT_TASK_TOKENS = quantiles("p0 70, p50 700, p90 2600, p100 7800")  # first prompt − prefix
SUBAGENT_EXTRA = quantiles(
    "p0 39, p5 134, p10 260, p20 544, p30 930, p40 1563, p50 2287, p60 3279, p70 4827, p80 6859, "
    "p90 12268, p95 18968, p100 60000"
)
SUBAGENT_OUTPUT = quantiles(
    "p0 62, p5 111, p10 136, p20 172, p30 201, p40 224, p50 241, p60 260, p70 288, p80 337, p90 514, "
    "p95 2965, p100 9829"
)
SUBAGENT_GAP_S = quantiles(
    "p0 0.2, p5 2, p10 2, p20 2.6, p30 3, p40 4, p50 4.4, p60 5, p70 6, p80 8, p90 30.6, p95 49, p100 133"
)

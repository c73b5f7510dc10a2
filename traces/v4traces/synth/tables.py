"""The measured numbers that the generator draws from, each with its source.

[T] the targets: statistics of 692 Claude Code sessions of callanjfox/kv-cache-tester (Apache-2.0), or,
    where it says so, published ones of TraceLab and agentcgroup.
[W] 485 of those sessions, published as files at 94f6046 (32,187 calls), measured for what [T] does not
    print: finer quantiles, conditional tables, rates per condition. "Append" means that the whole
    previous prompt is kept; shared prefixes were counted in full blocks of 64 tokens. Where [T] and [W]
    differ, [T] counts.
[C] calibrated: not seen in the files, set so that the outcome named beside it is [T]'s or [W]'s.
[A] assumption: no public number was found.

Units: tokens, seconds, shares. Tables give values at percentiles.
"""

from __future__ import annotations

from v4traces.synth.quantiles import Steps, quantiles

# --- How sessions start. Four classes by the first prompt; share and both tables [W], the shares moved
# by less than two points so that the median of all first prompts is the 24k of [T] (p5 13k, p25 19k,
# p75 106k, p95 382k). The upper tenth of LONG_FIRST is trimmed by up to 12 % for p99 of all prompts, 508k.
FRESH_SHARE, CARRIED_SHARE, RESUMED_SHARE, LONG_SHARE = 0.535, 0.185, 0.148, 0.132
FRESH_FIRST = quantiles(
    "p0 6343, p5 11605, p10 13131, p20 15668, p30 17505, p40 18416, p50 18964, p60 19581, p70 20299, "
    "p80 21264, p90 22961, p95 25439, p100 29914"
)
FRESH_CALLS = quantiles(
    "p0 3, p5 7, p10 12, p20 24, p30 40, p40 53, p50 68, p60 83, p70 100, p80 129, p90 191, p95 253, "
    "p99 379, p100 514"
)
CARRIED_FIRST = quantiles(
    "p0 30865, p5 32607, p10 40445, p20 45636, p30 59481, p40 64887, p50 65828, p60 68487, p70 83122, "
    "p80 88937, p90 93169, p95 97283, p100 99275"
)
CARRIED_CALLS = quantiles(
    "p0 4, p5 6, p10 13, p20 20, p30 25, p40 33, p50 40, p60 65, p70 84, p80 101, p90 153, p95 209, "
    "p99 235, p100 242"
)
RESUMED_FIRST = quantiles(
    "p0 100720, p5 103209, p20 107933, p30 112219, p40 118957, p50 123965, p60 131414, p70 139222, "
    "p80 148590, p90 167513, p95 185087, p100 198999"
)
RESUMED_CALLS = quantiles(
    "p0 3, p5 4, p10 4, p20 5, p30 7, p40 12, p50 20, p60 24, p70 34, p80 44, p90 57, p95 69, p99 96, "
    "p100 152"
)
LONG_FIRST = quantiles(
    "p0 200417, p5 220512, p10 229766, p20 251248, p30 260257, p40 285546, p50 297056, p60 335000, "
    "p70 412438, p80 449961, p90 555000, p95 690000, p100 830000"
)
LONG_CALLS = quantiles(
    "p0 3, p5 4, p10 4, p20 8, p30 12, p40 16, p50 21, p60 26, p70 34, p80 47, p90 58, p95 74, "
    "p99 110, p100 118"
)
# Sessions with the long window [C]: 6, 21 and 18 % of these classes pass 200k tokens [W].
FRESH_LONG_WINDOW, CARRIED_LONG_WINDOW, RESUMED_LONG_WINDOW = 0.20, 0.50, 0.25
# Sessions that compact a full window, and do not end there [C]: 0.44 % of calls shrink by half [T]; of 144
# such calls, 137 are in fresh sessions and the rest in carried ones [W].
FRESH_COMPACTING, CARRIED_COMPACTING = 0.8, 0.12
# Length of the session that a call is in [W]; long sessions grow more slowly per call: rank correlation
# of calls and mean growth −0.40 among fresh sessions [W].
LENGTH_SEEN_BY_CALLS = quantiles(
    "p0 3, p0.8 7, p1.7 12, p3.6 19, p8.1 30, p14.8 44, p22.4 60, p38.4 89, p52.5 120, p64.2 150, "
    "p77.7 214, p87.1 260, p93.6 332, p95.8 400, p100 514"
)

# --- Triggers. Share of calls that a user starts, per session, weighted by calls [W]; mean 14 % [T].
USER_SHARE = quantiles(
    "p0 0, p5 0, p10 0.0059, p20 0.0154, p30 0.0222, p40 0.0303, p50 0.0435, p60 0.054, p70 0.0882, "
    "p80 0.1858, p85 0.3431, p90 0.5397, p95 0.6762, p98 0.78, p100 0.92"
)
# Seconds from ready to sent. Named quantiles [T] (>300 s: 3.3 % and 30 %; >3600 s: 2.1 % of the user's),
# the rest [W]. Source clocks tick in seconds; below the first tick the table starts at 0.2 s, above the
# latency of the faster half of all tools (`TOOL_LATENCY_S`).
TOOL_GAP_S = quantiles(
    "p0 0.2, p1 2, p5 3, p10 4, p25 5, p30 5.8, p40 7, p50 9, p60 11.5, p70 16.5, p75 20, p80 27, "
    "p90 76, p95 164, p96.7 300, p98 485, p99 907, p99.3 1301, p99.5 2051, p99.7 3007, p99.8 3626, "
    "p99.85 7000, p99.9 16319, p99.95 39529, p100 52588"
)
USER_GAP_S = quantiles(
    "p0 0.2, p1 3, p5 9, p10 16, p20 31, p30 49, p40 77, p50 122, p60 182, p70 300, p75 390, p80 570, "
    "p90 1414, p95 3008, p97.9 3600, p99 6558, p99.5 9061, p99.8 13279, p99.9 18175, p99.95 24108, "
    "p100 38081"
)

# --- Output tokens: named quantiles [T] (mean 439), tail [W].
OUTPUT = quantiles(
    "p0 20, p1 58, p5 88, p10 104, p20 126, p25 138, p30 149, p40 178, p50 217, p60 273, p70 362, "
    "p75 429, p80 519, p90 894, p95 1500, p97 2100, p98 2700, p99 3700, p99.5 5103, p99.9 8194, "
    "p99.95 10100, p100 18195"
)
# What an append adds beyond the previous output: the tool result or the user's text, and framing [W]; the
# tail of TOOL_EXTRA is 5 % above the files, for p95 of the suffix, 8.1k [T].
TOOL_EXTRA = quantiles(
    "p0 0, p1 4, p5 16, p10 27, p20 74, p30 161, p40 263, p50 390, p60 599, p70 918, p80 1578, "
    "p90 3185, p95 6000, p98 10000, p99 13800, p99.5 17900, p99.9 30000, p99.95 39000, p100 95927"
)
USER_EXTRA = quantiles(
    "p0 0, p1 4, p5 19, p10 33, p20 62, p30 104, p40 157, p50 234, p60 358, p70 555, p80 1084, "
    "p90 2246, p95 4713, p98 8563, p99 12768, p99.5 15739, p99.9 30000, p100 62080"
)
# The second call of a session adds more: the first files are read [W].
SECOND_CALL_EXTRA = quantiles(
    "p0 2, p5 18, p10 50, p20 123, p30 229, p40 444, p50 894, p60 1592, p70 3825, p80 6624, p90 10986, "
    "p95 14096, p100 40000"
)
# In 11 % of appends the prompt grows by less than the previous output: by this part of it [W].
OUTPUT_DROPPED_SHARE = 0.111
OUTPUT_KEPT = quantiles(
    "p0 0.01, p5 0.553, p10 0.729, p20 0.841, p30 0.877, p40 0.903, p50 0.921, p70 0.952, p90 0.984, "
    "p100 0.999"
)
# In 4.5 % of appends the last one or two blocks of the previous prompt changed [W].
TAIL_CHANGED_SHARE, TAIL_CHANGED_TOKENS = 0.045, 128

# --- What is not an append. 2.2 % of calls leave the previous prompt more than two blocks before its
# end; 0.44 % shrink by more than half [T]. The kinds below, their rates and sizes [W].
# Rebuild: the conversation comes again behind another beginning (reminders, date, tool list). Mostly
# after idling: share of tool_result calls by gap; flat for calls of a user.
REBUILD_BY_GAP = Steps(
    edges=(10, 60, 150, 300, 600, 1800, 3600, 20000),
    rates=(0.0038, 0.0059, 0.013, 0.041, 0.083, 0.145, 0.43, 0.62, 0.95),
)
REBUILD_BY_USER = 0.0065
REBUILD_SECOND_CALL = Steps(edges=(25_000, 50_000), rates=(0.054, 0.40, 0.138))  # by first prompt
REBUILD_RATIO = quantiles(
    "p0 0.504, p5 0.651, p10 0.748, p20 0.887, p30 0.996, p40 1.003, p50 1.006, p60 1.012, p70 1.021, "
    "p80 1.04, p90 1.182, p95 2.061, p100 4"
)
REBUILD_MOST_ADDED_TOKENS = 90_000  # p95 of what a rebuild adds; a ratio of 2 is one of short prompts
SECOND_CALL_REBUILD_RATIO = quantiles(
    "p0 1, p10 1.007, p30 1.022, p50 1.035, p60 1.059, p70 1.103, p80 1.276, p90 2.64, p95 3.223, p100 5.7"
)
# What a rebuild still shares, in units of tools + system prompt; 8 % share nothing.
REBUILD_SHARED = quantiles(
    "p0 0, p8 0, p10 0.537, p15 0.623, p20 0.805, p25 0.954, p30 0.966, p50 0.996, p70 0.999, "
    "p85 1.003, p90 1.086, p95 1.33, p99 2.2, p100 7.1"
)
# Compaction: share of calls by previous prompt / window, by who starts the call. Beyond the limit the
# client compacts by itself.
COMPACTION_BY_USER = Steps(edges=(0.65, 0.70, 0.75, 0.80), rates=(0.001, 0.006, 0.105, 0.275, 0.60))
COMPACTION_BY_TOOL = Steps(edges=(0.70, 0.75, 0.80), rates=(0.001, 0.0017, 0.0065, 0.0157))
COMPACTED_PROMPT = quantiles(
    "p0 9903, p5 12818, p10 14164, p20 23862, p30 27227, p40 29982, p50 33032, p60 35572, p70 41029, "
    "p80 47141, p90 56911, p95 67320, p100 89216"
)
COMPACTED_SHARED = quantiles(
    "p0 0, p2 0.3, p5 0.658, p10 0.801, p30 0.852, p40 0.977, p50 0.998, p80 1.003, p90 1.346, "
    "p95 1.519, p100 1.7"
)
# Load: an append larger than the prompt before it, while that is still small: share by turn (1, 2, 3…)
# of calls after a prompt below LOAD_BELOW_TOKENS.
LOAD_BELOW_TOKENS = 30_000
LOAD_BY_TURN = Steps(edges=(2, 3, 6), rates=(0.22, 0.065, 0.035, 0.015))
LOAD_TOKENS = quantiles(
    "p0 14734, p5 20523, p10 23047, p20 26359, p30 28069, p40 31425, p50 34908, p60 43501, p70 53157, "
    "p80 73193, p90 89532, p95 103431, p100 160000"
)
# Edit: the end of the previous prompt is replaced, by 192 tokens or by thousands.
EDIT_BY_USER, EDIT_BY_TOOL = 0.0137, 0.0027
EDIT_REWIND = quantiles(
    "p0 192, p20 204, p30 222, p40 256, p50 344, p60 601, p70 1788, p80 4736, p90 13458, p95 22680, "
    "p100 72870"
)
EDIT_SUFFIX = quantiles(
    "p0 194, p10 361, p20 440, p30 593, p40 851, p50 1552, p60 2405, p70 4613, p80 7771, p90 15115, "
    "p95 21995, p100 47745"
)
# Fork: the call extends an earlier call of the session, this many calls back.
FORK_BY_USER, FORK_BY_TOOL = 0.0007, 0.0011
FORK_DISTANCE = quantiles(
    "p0 2, p10 3, p20 5, p30 13, p40 16, p50 24, p60 27, p70 36, p80 58, p90 114, p100 206"
)
FORK_SUFFIX = quantiles(
    "p0 228, p10 802, p20 1150, p30 1499, p40 1934, p50 3192, p60 4942, p70 7620, p80 12250, "
    "p90 22841, p100 55255"
)

# --- Prefixes common to sessions: tools + system prompt [W], 264 different ones among 485 sessions, the
# commonest in 4.3 %: rank = floor(450·u²) gives both.
GROUP_COUNT, TOOL_SCHEMA_COUNT = 450, 70
TOOL_TOKENS = quantiles(
    "p0 7000, p5 8315, p10 9292, p20 10279, p30 10834, p40 11899, p50 12262, p60 12439, p70 12530, "
    "p80 12597, p90 12872, p95 13136, p100 17261"
)
SYSTEM_TOKENS = quantiles(
    "p0 498, p5 1383, p10 1906, p20 2177, p30 2333, p40 2609, p50 2768, p60 2855, p70 2956, p80 3097, "
    "p90 3502, p95 4283, p100 7462"
)

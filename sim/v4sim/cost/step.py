"""The step cost of a deployment: lockstep over DP ranks, three paths that agree bit for bit.

A step lasts as long as its slowest rank's attention and mHC, then what all do together: experts and
collectives by the tokens of all ranks, LM head, draft passes. Parts are those of the slowest rank. Idle
ranks pay collectives only. Then, in whole nanoseconds:

    overhead   sampler launches and one launch a draft pass; eager decode (more rows than the largest
               captured graph) adds a launch for every operation; an eager prefill lasts as long at least as
               its process needs to launch and to schedule (SGLang, and vLLM's ranks of one GPU, do both in
               one). Behind DeepEP's normal dispatch the host waits for counts in every layer, so that
               the GPU waits for the launch behind them
    cpu        host work of the scheduler that the GPU time does not hide (`host_is_hidden`)

`step` uses no numpy; `decode` does the same operations in the same order on arrays, and `run.DecodeRun`,
which compiled code takes instead, one by one. Every float part is rounded once, half to even. Leaves out
transfers and everything random. Caches by shape: not thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from v4sim.cost.attention import IDLE, NS, AttentionCost, DecodeTerms
from v4sim.cost.base import PART_INDEX, PARTS, Int64
from v4sim.cost.domain import Seen
from v4sim.cost.engine_constants import EngineConstants, cpu_step_us, host_is_hidden, stated_us
from v4sim.cost.fixed_rows import FixedRows
from v4sim.cost.load import RankLoad
from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import whole
from v4sim.cost.together import Together, TogetherCost
from v4sim.cost.vectors import VectorTable

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec

_SCAN: Final = PART_INDEX["index_scan"]
_TOPK: Final = PART_INDEX["topk"]
_OTHER: Final = PART_INDEX["attention_other"]
_HCA: Final = PART_INDEX["hca"]
_SWA: Final = PART_INDEX["swa"]
_MHC: Final = PART_INDEX["mhc"]
_SHARED: Final = PART_INDEX["shared_expert"]
_MOE: Final = PART_INDEX["moe"]
_DISPATCH: Final = PART_INDEX["dispatch_combine"]
_REDUCE: Final = PART_INDEX["all_reduce"]
_HEAD: Final = PART_INDEX["lm_head"]
_DRAFT: Final = PART_INDEX["mtp_draft"]
_OVERHEAD: Final = PART_INDEX["overhead"]
_CPU: Final = PART_INDEX["cpu"]
_NUM: Final = len(PARTS)
_ATTENTION_ROWS: Final = np.array([_OTHER, _SCAN, _TOPK, _HCA, _SWA, _MHC])


@final
class ProfileCost:
    """`StepCost` from a profile. Made by `compile_cost`."""

    def __init__(
        self, profile: Profile, deployment: Deployment, spec: ModelSpec, constants: EngineConstants
    ) -> None:
        engine = deployment.engine
        self._profile, self._constants = profile, constants
        self._stated_us = stated_us(engine)
        self.attention = AttentionCost(profile, deployment, spec)
        mhc = profile.operation(f"mhc.{engine.kind}.{spec.name}")
        self._mhc = mhc.line(NS)
        self._together = TogetherCost(profile, deployment, spec, self.attention, self._mhc, constants)
        self._layers = spec.num_layers
        self._cpu_ns = round(NS * cpu_step_us(engine, deployment.parallel.attention_dp, constants))
        self._hidden_cpu = host_is_hidden(deployment)
        one_process = engine.kind == "sglang" or deployment.parallel.attention_tp == 1
        self._launching_cpu_ns = self._cpu_ns if self._hidden_cpu and one_process else 0
        self._graph_rows = engine.cuda_graph_max_bs or 0
        self._graph_prefill = int(constants.prefill_graph_tokens.value)
        self._pooled = bool(spec.index.pool_tokens)
        self._operations: dict[str, Operation] = {
            **self.attention.used,
            **self._together.used,
            mhc.name: mhc,
        }
        topk, hca = self.attention.topk_line.pieces, self.attention.hca_line.pieces
        self._cuts = topk[0]  # the two lines share them
        self._piece_slopes, self._piece_bases = np.stack([topk[1], hca[1]]), np.stack([topk[2], hca[2]])
        self._mhc_of: dict[int, float] = {0: 0.0}
        self._tables: dict[int, VectorTable] = {}
        self._commons: dict[tuple[int, int, int], tuple[list[int], int]] = {}
        # By width: attention and mHC of a rank, by its rows.
        self._by_rows: dict[int, list[tuple[DecodeTerms, float]]] = {}
        self._seen = Seen()

    def step(self, loads: Sequence[RankLoad], width: int, kind: str) -> list[int]:
        attention, seen = self.attention, self._seen
        best = -1.0
        parts = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        rows_total = rows_widest = tokens_total = tokens_widest = 0
        new_total = new_widest = chunks_total = chunks_widest = 0
        for load in loads:
            rows, prefill = load.rows, load.prefill
            new = 0
            terms = IDLE
            s = m = 0.0
            if prefill:
                new = seen.chunks(prefill)
                new_total += new
                chunks_total += len(prefill)
                new_widest = max(new_widest, new)
                chunks_widest = max(chunks_widest, len(prefill))
            tokens = rows * width + new
            if not tokens:
                continue
            tokens_total += tokens
            if tokens > tokens_widest:
                tokens_widest = tokens
            if rows:
                terms = attention.decode_terms(rows, width, new > 0)
                ctx_sum, ctx_max = load.ctx_sum, load.ctx_max
                s, m = float(ctx_sum), float(ctx_max)
                rows_total += rows
                if rows > rows_widest:
                    rows_widest = rows
                if ctx_sum > seen.batch_context:
                    seen.decoding(ctx_sum, ctx_max)
                elif ctx_max > seen.context:
                    seen.context = ctx_max
            scan, topk, other, hca = attention.decode_parts(terms, s, m, attention.topk_line.piece(m))
            swa, mhc = terms.swa, self._mhc_at(tokens)
            if new:
                more = attention.prefill_parts(prefill)
                scan, topk, other = scan + more.scan, topk + more.topk, other + more.other
                hca, swa = hca + more.hca, swa + more.swa
            total = scan + other + topk + hca + (swa + mhc)
            if total > best:
                best = total
                parts = (scan, topk, other, hca, swa, mhc)
        out = [0] * _NUM
        if best < 0.0:
            return out
        seen.group = max(seen.group, tokens_total)
        seen.tokens = max(seen.tokens, rows_widest * width)
        out[_SCAN], out[_TOPK], out[_OTHER] = whole(parts[0]), whole(parts[1]), whole(parts[2])
        out[_HCA], out[_SWA], out[_MHC] = whole(parts[3]), whole(parts[4]), whole(parts[5])
        floor = waits = 0
        if new_total:
            together = self._together.prefill(
                (rows_total, rows_widest, width),
                (new_total, new_widest),
                (tokens_total, tokens_widest),
                (rows_total * width + chunks_total, rows_widest * width + chunks_widest),
            )
            if tokens_widest > self._graph_prefill:
                floor = self._together.eager_ns + self._launching_cpu_ns
                waits = self._together.eager_waits_ns
        else:
            eager = rows_widest > self._graph_rows
            together = self._together.decode(rows_total, rows_widest, width, eager)
        _put(out, together)
        gpu = sum(out)
        idle = max(floor - gpu, waits)
        out[_OVERHEAD] += idle
        gpu += idle
        if not self._hidden_cpu:
            out[_CPU] = self._cpu_ns
        elif self._cpu_ns > gpu:
            out[_CPU] = self._cpu_ns - gpu
        return out

    def decode(self, rows: Sequence[int], ctx_sum: Int64, ctx_max: Int64, width: int) -> Int64:
        steps = len(ctx_sum)
        widest, total_rows = max(rows), sum(rows)
        if not total_rows:
            return np.zeros((_NUM, steps), dtype=np.int64)
        common, common_ns = self._common(total_rows, widest, width)
        self._seen.decoding(max(ctx_sum[-1].tolist()), max(ctx_max[-1].tolist()))  # contexts only grow
        table = self._tables.get(width)
        if table is None:
            table = self._tables[width] = self._table(width)
        v = table.at(rows, steps)
        s, m = ctx_sum.astype(np.float64, order="C"), ctx_max.astype(np.float64, order="C")
        x = np.empty((4, *s.shape))
        np.minimum(s, v.fill_cap, out=x[0])
        x[1:] = s
        parts = v.slopes
        parts *= x
        parts += v.bases
        other, scan, topk, hca = parts
        if self._pooled:
            scan += np.minimum(s, v.pool_cap) * v.pool_slope
        if min(ctx_max[0].tolist()) <= self.attention.topk_start:
            topk *= m > self.attention.topk_start
        piece = self._cuts.searchsorted(m, "right")
        context = x[2:]
        context[:] = m
        context *= self._piece_slopes.take(piece, axis=1)
        context += self._piece_bases.take(piece, axis=1)
        np.maximum(parts[2:], context, out=parts[2:])
        hca += v.hca_base
        m *= v.tail_slope
        other += m
        total = scan + other  # in the order of `step`
        total += topk
        total += hca
        total += v.alone
        slowest = total.argmax(axis=1)
        slowest += np.arange(0, total.size, len(rows))
        out = np.empty((_NUM, steps), dtype=np.int64)
        out[:] = np.array(common)[:, None]
        out[_ATTENTION_ROWS] = np.rint(v.attention.reshape(len(_ATTENTION_ROWS), -1).take(slowest, axis=1))
        if not self._hidden_cpu:
            out[_CPU] = self._cpu_ns
        elif common_ns < self._cpu_ns:  # otherwise the GPU hides it in every step
            np.maximum(self._cpu_ns - out.sum(axis=0), 0, out=out[_CPU])
        return out

    def fixed(self, rows: Sequence[int], width: int) -> FixedRows:
        """What decode steps of so many sequences a rank have in common, to price them in loops."""
        total = sum(rows)
        common = self._common(total, max(rows), width)[0] if total else [0] * _NUM
        table = self._by_rows.setdefault(width, [])
        for count in range(len(table), max(rows, default=0) + 1):
            table.append((self.attention.decode_terms(count, width), self._mhc_at(count * width)))
        return FixedRows(
            [table[count][0] for count in rows],
            [table[count][1] for count in rows],
            common,
            self._cpu_ns if total else 0,
            self._hidden_cpu,
            self._seen,
        )

    def _table(self, width: int) -> VectorTable:
        return VectorTable(
            lambda rows: self.attention.decode_terms(rows, width), lambda rows: self._mhc_at(rows * width)
        )

    def _common(self, total: int, widest: int, width: int) -> tuple[list[int], int]:
        """What is the same in every step of a batch: its parts [PARTS], and their sum."""
        key = (total, widest, width)
        found = self._commons.get(key)
        if found is None:
            self._seen.tokens = max(self._seen.tokens, widest * width)
            self._seen.group = max(self._seen.group, total * width)
            parts = [0] * _NUM
            _put(parts, self._together.decode(total, widest, width, widest > self._graph_rows))
            found = self._commons[key] = parts, sum(parts)
        return found

    def _mhc_at(self, tokens: int) -> float:
        found = self._mhc_of.get(tokens)
        if found is None:
            found = self._mhc_of[tokens] = self._layers * self._mhc.at(tokens)
        return found

    def provenance(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name in sorted(self._operations):
            operation = self._operations[name]
            source, residual = self._profile.provenance_of(operation), operation.residual
            rows.append(
                {
                    "op": name,
                    "kind": source.kind,
                    "source": source.source + (f" ({operation.note})" if operation.note else ""),
                    "domain": operation.domain,
                    "residual": {"median": residual.median, "p95": residual.p95, "rows": residual.rows},
                }
            )
        rows += self._constants.provenance()
        stated = self._stated_us
        for row in rows:
            if row["op"] in stated:
                row.update(
                    kind="given", source="the deployment", domain=f"{stated[row['op']]:g}", residual=None
                )
        if "engine.cpu_step_us" in stated:  # the whole step: the exchange between ranks is part of it
            rows = [row for row in rows if row["op"] != "engine.dp_gather_us"]
        return rows

    def domain_warnings(self) -> list[str]:
        attention = self.attention
        return self._seen.warnings(
            tokens=attention.top_tokens,
            context=attention.top_context,
            new=attention.top_new,
            past=attention.top_past,
            group=self._together.top_tokens,
        )


def _put(out: list[int], together: Together) -> None:
    """The common parts into a list of parts."""
    out[_MOE], out[_DISPATCH], out[_REDUCE] = together.moe, together.dispatch, together.reduce
    out[_SHARED], out[_HEAD], out[_DRAFT] = together.shared, together.head, together.draft
    out[_OVERHEAD] = together.overhead

"""Attention of one rank: decode rows and prefill chunks to nanoseconds of every part.

Decode, per layer kind, T = rows x width query tokens, S and M the sum and the maximum of contexts:

    index scan   sources x (floor(T) + S x max(HBM leg, arithmetic leg x width))   keys are read once a
                 sequence whatever the width, arithmetic is paid per query token; TP does not appear
    top-k        sources x max(latency of one row at M, saturated rate over all tokens)
    CSA rest     base(T) + growth(T) x filled share of the top-k + tail x M         -> attention_other
    HCA          base(T) + max(latency of one query at M, saturated rate)            -> hca
    SWA layers   the HCA module at short context                                     -> swa

Batch x long context is in no table: here it is composed of legs, which is what the domain warnings say.
Prefill, one chunk: the tables. Several: HCA T(total, 0) + sum of [T(new, past) - T(new, 0)]; CSA rest the
same with a base of short prompts instead of T(., 0), whose own entries would be counted twice; scan and
top-k by their work, at least the slowest chunk. Where decode rows and chunks share a rank, the launch floor
of the modules is paid once.

Leaves out: anything between ranks. Units: nanoseconds; profile values are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Grids, Line
from v4sim.errors import ProfileError

if TYPE_CHECKING:
    from v4sim.config import Deployment
    from v4sim.model import ModelSpec

NS: Final = 1000.0  # nanoseconds in a microsecond
_TABLE_RATIO: Final = 4  # native tokens an entry in the published CSA tables


@dataclass(slots=True)
class DecodeTerms:
    """Coefficients of one rank's decode for fixed rows and width; all zero for an idle rank."""

    scan_base: float = 0.0
    scan_slope: float = 0.0
    pool_cap: float = 0.0
    pool_slope: float = 0.0
    topk_rate_base: float = 0.0
    topk_rate_slope: float = 0.0
    other_base: float = 0.0
    fill_cap: float = 0.0
    fill_slope: float = 0.0
    tail_slope: float = 0.0
    hca_base: float = 0.0
    hca_slope: float = 0.0
    swa: float = 0.0


@dataclass(slots=True, init=False)
class PrefillParts:
    """Nanoseconds of one rank's prefill chunks."""

    scan: float
    topk: float
    other: float
    hca: float
    swa: float

    def __init__(self, scan: float, topk: float, other: float, hca: float, swa: float) -> None:
        # Written out: compiled code makes one per rank and step, and a generated one is interpreted.
        self.scan, self.topk, self.other, self.hca, self.swa = scan, topk, other, hca, swa


IDLE: Final = DecodeTerms()


class AttentionCost:
    """Compiled attention of one deployment. `used` lists the operations that it reads."""

    def __init__(self, profile: Profile, deployment: Deployment, spec: ModelSpec) -> None:
        self.used: dict[str, Operation] = {}
        self._profile = profile
        engine, tp = deployment.engine.kind, deployment.parallel.attention_tp
        dtype = deployment.model.index_dtype or "fp8"
        model, cut = spec.name, f"{engine}.{spec.name}.tp{tp}"
        csa = self._take(f"csa_decode.{cut}")
        tokens = csa.axes[0].points
        self._csa_base = Line(tokens, [NS * low for low, _ in csa.values])
        self._csa_full = Line(tokens, [NS * high for _, high in csa.values])
        self._hca_base = self._take(f"hca_decode.{cut}").line(NS)
        self._floor = self._take("index_scan_floor").line(NS)
        scan = self._take(f"index_scan.{model}.{dtype}")
        self._key_hbm = NS * scan.term("hbm")
        self._key_work = NS * max(scan.term("matrix"), scan.term("head_sum"))
        rate = self._take(f"topk_rate.{model}")
        self._topk_token, self._topk_pair = NS * rate.term("per_token"), NS * rate.term("per_pair")
        self._tail = NS * self._take(f"csa_tail.{model}").term("per_token")
        self._hca_work = self._hca_hbm = 0.0
        if spec.n_hca:
            saturated = self._take(f"hca_saturated.{model}")
            self._hca_work, self._hca_hbm = NS * saturated.term("compute"), NS * saturated.term("hbm")
        self.n_csa, self.n_hca, self.n_swa = spec.n_csa, spec.n_hca, spec.n_swa
        self._sources, self._pooled = _sources(spec)
        self._plain = self._sources == [(_TABLE_RATIO, self.n_csa)] and not self._pooled
        self._pool_tokens = float(spec.index.pool_tokens)
        self.topk_start = float(spec.index.topk * min((r for r, _ in self._sources), default=_TABLE_RATIO))
        self.topk_line, self.hca_line = self._context_lines(model)
        self._prefill = self._grids(
            f"csa_prefill.{cut}",
            f"hca_prefill.{cut}",
            _prefill_scan(profile, engine, model),
            f"topk_prefill.{model}",
        )
        self.top_tokens = min(self._csa_base.top, self._hca_base.top)
        self.top_context = self.topk_line.top
        self.top_new, self.top_past = self._prefill.top_x, self._prefill.top_y
        self._base_share = self._take(f"csa_prefill_share.{cut}").line()
        self._source_count = sum(count for _, count in (*self._sources, *self._pooled))
        self._scan_floor = self._source_count * self._floor.at(1)
        # Entries of all sources a token of context has, in units of one entry.
        self._entry_share = sum(count / ratio for ratio, count in self._sources)
        self._cache: dict[tuple[int, int, bool], DecodeTerms] = {}
        self._empty: dict[int, list[float]] = {}

    def _take(self, name: str) -> Operation:
        operation = self.used[name] = self._profile.operation(name)
        return operation

    def _grids(self, *names: str) -> Grids:
        """CSA rest, HCA, scan and top-k, which must share their grid."""
        operations = [self._take(name) for name in names]
        first = operations[0]
        for operation in operations:
            if [a.points for a in operation.axes] != [a.points for a in first.axes]:
                raise ProfileError(
                    f"Operations {first.name!r} and {operation.name!r} of profile {self._profile.name!r} "
                    "must stand on the same new and past tokens: write both with the same v4calib run."
                )
        return Grids(first.axes[0].points, first.axes[1].points, [o.rows(NS) for o in operations])

    def _context_lines(self, model: str) -> tuple[Line, Line]:
        """Top-k of all sources and HCA of all layers over the longest context, on shared cuts."""
        topk = self._take(f"topk_decode.{model}")
        one = topk.line(NS)
        top = topk.axes[0].points[-1]
        context = Line((0.0, top), (0.0, 0.0))
        cuts = {0.0, top}
        if self.n_hca:
            hca = self._take(f"hca_context.{model}")
            context = hca.line(NS)
            cuts |= set(hca.axes[0].points)
        groups = [*self._sources, *((ratio, count) for ratio, count in self._pooled)]
        for ratio, _ in groups:
            cuts |= {p * ratio / _TABLE_RATIO for p in topk.axes[0].points}
        points = sorted(c for c in cuts if c <= top)
        values = []
        for x in points:
            total = sum(count * one.at(x * _TABLE_RATIO / ratio) for ratio, count in self._sources)
            pool = min(x, self._pool_tokens)
            total += sum(count * one.at(pool * _TABLE_RATIO / ratio) for ratio, count in self._pooled)
            values.append(total)
        return Line(points, values), Line(points, [self.n_hca * context.at(x) for x in points])

    def decode_terms(self, rows: int, width: int, shared: bool = False) -> DecodeTerms:
        """Coefficients for rows sequences; `shared`: chunks of the same rank already pay the launch floor."""
        key = (rows, width, shared)
        terms = self._cache.get(key)
        if terms is None:
            terms = self._cache[key] = self._terms(rows, width, shared) if rows else IDLE
        return terms

    def decode_parts(
        self, terms: DecodeTerms, s: float, m: float, piece: int
    ) -> tuple[float, float, float, float]:
        """Scan, top-k, CSA rest and HCA of a rank whose contexts are `s` tokens in all and `m` at most.

        `piece` is that of the context lines on which `m` lies; the two share their cuts.
        """
        scan = s * terms.scan_slope + terms.scan_base
        if self._pooled:
            scan = scan + min(s, terms.pool_cap) * terms.pool_slope
        other = min(s, terms.fill_cap) * terms.fill_slope + terms.other_base
        other = other + m * terms.tail_slope
        rate = s * terms.topk_rate_slope + terms.topk_rate_base if m > self.topk_start else 0.0
        topk = max(self.topk_line.on(piece, m), rate)
        hca = max(self.hca_line.on(piece, m), s * terms.hca_slope) + terms.hca_base
        return scan, topk, other, hca

    def _terms(self, rows: int, width: int, shared: bool) -> DecodeTerms:
        tokens = rows * width
        base, full = self._csa_base.at(tokens), self._csa_full.at(tokens)
        hca = self._hca_base.at(tokens)
        growth = max(full - base, 0.0)
        if shared:
            base = max(base - self._csa_base.at(1), 0.0)
            hca = max(hca - self._hca_base.at(1), 0.0)
        per_entry = max(self._key_hbm, self._key_work * width)
        sources = sum(count for _, count in self._sources)
        cap = rows * self.topk_start
        return DecodeTerms(
            scan_base=self._source_count * self._floor.at(tokens),
            scan_slope=per_entry * self._entry_share,
            pool_cap=rows * self._pool_tokens,
            pool_slope=per_entry * sum(count / ratio for ratio, count in self._pooled),
            topk_rate_base=sources * self._topk_token * tokens,
            topk_rate_slope=width * self._topk_pair * self._entry_share * _TABLE_RATIO,
            other_base=self.n_csa * base,
            fill_cap=cap,
            fill_slope=self.n_csa * growth / cap if cap else 0.0,
            tail_slope=self.n_csa * self._tail,
            hca_base=self.n_hca * hca,
            hca_slope=self.n_hca * max(self._hca_work * width, self._hca_hbm),
            swa=self.n_swa * hca,
        )

    def prefill_parts(self, chunks: tuple[tuple[int, int], ...]) -> PrefillParts:
        """Nanoseconds of the chunks (new, past) of one rank in one step."""
        if len(chunks) == 1:
            new, past = chunks[0]
            other, hca, scan, topk = self._cell(new, past)
            swa = self._at_zero(new)[1] if past else hca
        else:
            total = 0
            for new, _ in chunks:
                total += new
            hca = swa = self._at_zero(total)[1]
            other = self._base(total)
            scan = topk = scan_most = topk_most = 0.0
            scan_work = self._scan_floor
            topk_work = 0.0
            for new, past in chunks:
                cell = self._cell(new, past)
                other += max(cell[0] - self._base(new), 0.0)
                hca += cell[1] - self._at_zero(new)[1]
                scan += cell[2] - self._scan_floor
                topk += cell[3]
                scan_most, topk_most = max(scan_most, cell[2]), max(topk_most, cell[3])
                seen = past + new / 2
                scan_work += self._entry_share * seen * max(self._key_hbm, self._key_work * new)
                if past + new > self.topk_start:
                    topk_work += new * (self._topk_token + self._topk_pair * seen) * self._source_count
            # Alone, a short chunk leaves SMs idle; together chunks are bound by their work.
            scan = max(scan_most, min(scan + self._scan_floor, scan_work))
            topk = max(topk_most, min(topk, topk_work))
        return PrefillParts(max(scan, 0.0), topk, self.n_csa * other, self.n_hca * hca, self.n_swa * swa)

    def _base(self, new: int) -> float:
        """CSA rest over new tokens that have no entries of their own chunk to attend to."""
        return min(self._base_share.at(new), 1.0) * self._at_zero(new)[0]

    def _cell(self, new: int, past: int) -> tuple[float, float, float, float]:
        """Rest and HCA of one layer, scan and top-k of all sources, for one chunk."""
        other, hca, scan, topk = self._prefill.at(new, past) if past else self._at_zero(new)
        if self._plain:
            return other, hca, self.n_csa * scan, self.n_csa * topk
        return other, hca, *self._selection(new, past)

    def _selection(self, new: int, past: int) -> tuple[float, float]:
        """Scan and top-k of all sources where ratios differ from the tables' or a pool cuts the history."""
        scan = topk = 0.0
        pool = min(float(past), self._pool_tokens)
        groups = [(float(past), ratio, count) for ratio, count in self._sources]
        groups += [(pool, ratio, count) for ratio, count in self._pooled]
        for seen, ratio, count in groups:
            cell = self._prefill.at(new, seen * _TABLE_RATIO / ratio)
            scan += count * cell[2]
            topk += count * cell[3]
        return scan, topk

    def _at_zero(self, new: int) -> list[float]:
        """All four without past, kept per size."""
        found = self._empty.get(new)
        if found is None:
            found = self._empty[new] = self._prefill.at(new, 0)
        return found

    def window_layer(self, tokens: int, prefill: bool) -> float:
        """One layer with a sliding window alone, as a draft layer has."""
        if not tokens:
            return 0.0
        return self._at_zero(tokens)[1] if prefill else self._hca_base.at(tokens)


def _prefill_scan(profile: Profile, engine: str, model: str) -> str:
    """vLLM scans keys that lie in one piece, SGLang pages; a profile with one scan has that for both."""
    own = f"index_scan_prefill.{engine}.{model}"
    return own if profile.has(own) else f"index_scan_prefill.{model}"


def _sources(spec: ModelSpec) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(ratio, layers) that scan the whole history, and those that scan a published candidate pool."""
    whole: dict[int, int] = {}
    pooled: dict[int, int] = {}
    for layer in spec.index_sources:
        after = spec.index.pool_layer is not None and layer.index > spec.index.pool_layer
        group = pooled if after else whole
        group[layer.ratio] = group.get(layer.ratio, 0) + 1
    return sorted(whole.items()), sorted(pooled.items())

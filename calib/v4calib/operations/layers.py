"""The kinds of attention layers of a model, by what they run, and how many of each there are.

V4 has two that matter to a profile: CSA layers with compressors and an indexer, HCA layers with one of them.
V4.1's CSA2 layers differ among themselves: some publish entries and index keys at ratio 2 or 1, some only
select by their own query, the rest reuse a selection. A module of a profile is the mean over its family.

Matrices are [inputs, outputs] of one rank; tensor parallelism divides heads and output groups, what is
replicated (low-rank query, latent, compressors, indexer) is not divided. Dimensions come from
`v4kernels.shapes`, layers from the simulator's model description.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from v4kernels.matrices import Matrix, attention_matrices, csa_matrices, hca_matrices
from v4kernels.shapes import HEAD_DIM, INDEX_DIM, model
from v4sim.model import spec

_RATIO_NAMES = {4: "c4", 2: "c2", 1: "c1"}


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same parts. `family` names their module: csa, or hca for those that select nothing."""

    name: str
    family: str
    layers: int
    compressors: tuple[str, ...] = ()  # kinds of `operations.compressor`
    selects: bool = False  # has an index query and head weights


def layer_kinds(name: str) -> tuple[LayerKind, ...]:
    """All kinds of a model; layers with a window alone count as hca where there is no HCA layer."""
    described = spec(name)
    found: Counter[LayerKind] = Counter()
    for layer in described.layers:
        compressors: tuple[str, ...] = ()
        if layer.kind == "swa":
            if described.n_hca:
                continue  # priced as HCA at short context
            kind, family = "bare", "hca"
        elif layer.kind == "dense":
            kind, family, compressors = "hca", "hca", ("c128",)
        else:
            kind, family = "reindex" if layer.selects else "bare", "csa"
            if layer.owns_kv:
                ratio = _RATIO_NAMES[layer.ratio]
                # V4's index keys have a compressor of their own, V4.1's come from the latent.
                compressors = (ratio, "index") if ratio == "c4" else (ratio,)
                kind = f"csa-{ratio}"
        found[LayerKind(kind, family, 0, compressors, layer.selects)] += 1
    return tuple(LayerKind(k.name, k.family, n, k.compressors, k.selects) for k, n in found.items())


def kind_of(name: str, layer: str) -> LayerKind:
    """The first kind of that name: kinds that share it run the same."""
    return next(k for k in layer_kinds(name) if k.name == layer)


def layer_names(name: str) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(k.name for k in layer_kinds(name)))


def layer_matrices(name: str, kind: LayerKind, tp: int) -> list[Matrix]:
    """Projections of one attention layer on one rank."""
    m = model(name)
    matrices = attention_matrices(m, m.heads // tp)
    keys, index_keys, *selection = csa_matrices(m)
    for compressor in kind.compressors:
        matrices += {
            "c4": [keys],
            "index": [index_keys],
            "c128": hca_matrices(m),
            # V4.1's: a compressor at ratio 2 or 1, whose index keys come from the latent.
            "c2": [Matrix("compressor", m.hidden, 2 * HEAD_DIM), Matrix("index_keys", HEAD_DIM, INDEX_DIM)],
            "c1": [Matrix("compressor", m.hidden, HEAD_DIM), Matrix("index_keys", HEAD_DIM, INDEX_DIM)],
        }[compressor]
    if kind.selects:
        matrices += selection
    return matrices

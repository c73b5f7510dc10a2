"""The tiny model: however a session is served, outputs and cache are those of one long prefill."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from v4kernels.reference.compressor import compress, rope_table
from v4kernels.reference.model import TinyModel
from v4kernels.reference.tiny import TinyShape, random_weights
from v4kernels.shapes import CompressorShape

SHAPE = TinyShape()
TOKENS = 70  # four closed HCA groups and an open one; the window of 8 has rolled many times


@pytest.fixture(scope="module")
def model():
    return TinyModel(SHAPE, random_weights(SHAPE, torch.Generator().manual_seed(1)))


@pytest.fixture(scope="module")
def prompt():
    return torch.randint(0, SHAPE.vocab, (TOKENS,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def whole(model, prompt):
    """Outputs and session of a single prefill."""
    session = model.new_session()
    return model.extend(session, prompt), session


def close(got, want):
    # The same sums in another batch shape: fp64 round-off, which no selection or rounding step here sits
    # close to.
    assert torch.allclose(got, want, rtol=1e-9, atol=1e-9)


def same_state(session, other):
    assert session.length == other.length
    for mine, theirs in zip(session.layers, other.layers, strict=True):
        for name in ("window", "entries", "index_keys"):
            close(getattr(mine, name), getattr(theirs, name))
        assert mine.pending.keys() == theirs.pending.keys()
        for key, rows in mine.pending.items():
            close(rows, theirs.pending[key])


def test_decode_token_by_token(model, prompt, whole):
    """Prefill of 33, then one at a time across group and window edges."""
    session = model.new_session()
    outs = [model.extend(session, prompt[:33])]
    outs += [model.extend(session, prompt[t : t + 1]) for t in range(33, TOKENS)]
    close(torch.cat(outs), whole[0])
    same_state(session, whole[1])


@settings(max_examples=5, deadline=None)
@given(cuts=st.lists(st.integers(1, TOKENS - 1), max_size=5, unique=True))
def test_any_chunking(cuts):
    """Chunked prefill at any tokens."""
    weights = random_weights(SHAPE, torch.Generator().manual_seed(1))
    model = TinyModel(SHAPE, weights)
    prompt = torch.randint(0, SHAPE.vocab, (TOKENS,), generator=torch.Generator().manual_seed(2))
    reference = model.new_session()
    want = model.extend(reference, prompt)
    session = model.new_session()
    edges = [0, *sorted(cuts), TOKENS]
    outs = [model.extend(session, prompt[a:b]) for a, b in pairwise(edges)]
    close(torch.cat(outs), want)
    same_state(session, reference)


def test_prefix_hit_extends_at_any_native_token(model, prompt, whole):
    """A second call shares 50 tokens, no multiple of any ratio: from the stored state only the rest is
    computed."""
    first = model.new_session()
    model.extend(first, prompt[:50])
    second = first.branch()
    close(model.extend(second, prompt[50:]), whole[0][50:])
    same_state(second, whole[1])


def test_pause_and_restore(model, prompt, whole, tmp_path):
    """State to a file and back, as offload to storage does."""
    path = tmp_path / "session"
    session = model.new_session()
    model.extend(session, prompt[:41])
    layers = [(s.window, s.entries, s.index_keys, s.pending) for s in session.layers]
    torch.save((session.length, layers), path)
    restored = model.new_session()
    restored.length, layers = torch.load(path)
    for state, saved in zip(restored.layers, layers, strict=True):
        state.window, state.entries, state.index_keys, state.pending = saved
    close(model.extend(restored, prompt[41:]), whole[0][41:])


def test_verify_rejects_without_trace(model, prompt, whole):
    """A verify step of 4 drafts on a branch; two are right. Outputs of the right ones hold, the rest is
    dropped."""
    session = model.new_session()
    model.extend(session, prompt[:30])
    drafts = torch.cat([prompt[30:32], (prompt[32:34] + 1) % SHAPE.vocab])
    verify = model.extend(session.branch(), drafts)
    close(verify[:2], whole[0][30:32])
    assert not torch.allclose(verify[2:], whole[0][32:34])
    model.extend(session, prompt[30:32])
    close(model.extend(session, prompt[32:]), whole[0][32:])


def test_branches_do_not_disturb_each_other(model, prompt, whole):
    """Two futures of one prefix, fed alternately."""
    trunk = model.new_session()
    model.extend(trunk, prompt[:20])
    left, right = trunk.branch(), trunk.branch()
    outs = []
    for t in range(20, TOKENS):
        outs.append(model.extend(left, prompt[t : t + 1]))
        model.extend(right, (prompt[t : t + 1] * 3 + 1) % SHAPE.vocab)
    close(torch.cat(outs), whole[0][20:])
    assert trunk.length == 20


def test_quantised_cache_is_near_the_exact_one(prompt, whole):
    """e4m3 latents and keys change outputs, but little: the cache format is not noise."""
    exact = TinyModel(SHAPE, random_weights(SHAPE, torch.Generator().manual_seed(1)), quantised=False)
    out = exact.extend(exact.new_session(), prompt)
    error = float((out - whole[0]).norm() / out.norm())
    assert 1e-5 < error < 0.25


def test_every_part_matters(prompt, whole, model):
    """Zeroing any weight changes the output: nothing in the model is dead."""
    base = random_weights(SHAPE, torch.Generator().manual_seed(1))
    for name in base:
        changed = dict(base)
        changed[name] = torch.roll(base[name], 1, 0) if base[name].shape[0] > 1 else base[name] * 2
        small = TinyModel(SHAPE, changed)
        assert not torch.allclose(small.extend(small.new_session(), prompt[:30]), whole[0][:30]), name


def test_compressor_reference_is_the_models(rng):
    """The reference that checks the Triton compressor and the model that `transformers` checks pool alike."""
    shape = TinyShape(head_dim=128, rope_dim=64)
    model = TinyModel(shape, random_weights(shape, rng), quantised=False)
    x = torch.randn(21, shape.hidden, generator=rng, dtype=torch.float64)
    for layer, kind, ratio in ((1, "csa", 4), (2, "hca", 16)):
        name = f"layers.{layer}.self_attn.compressor."
        session = model.new_session()
        got = model._compress(x, session, session.layers[layer], name, kind, 128)
        rows = torch.cat([x @ model.weights[name + part].T for part in ("kv_proj", "gate_proj")], 1)
        bias, norm = (model.weights[name + part] for part in ("position_bias", "kv_norm"))
        table = rope_table(21, shape.compressed_theta)
        want = compress(
            rows, bias, norm, table, CompressorShape(128, ratio, overlap=kind == "csa"), shape.eps
        )
        # The model's angles are fp32 like transformers'; the table's are fp64 rounded once.
        assert torch.allclose(got, want, atol=1e-5)

"""Machine code without a GPU: the committed table keeps its rules, and the launchers pick nothing it
does not hold."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import triton

from v4kernels import (
    aot_cases,
    attention,
    checks,
    compressor,
    index_scan,
    layouts,
    mhc,
    moe_grouped_gemm,
    norm_rope,
    shapes,
    swa_attention,
    topk,
)
from v4kernels.reference.compressor import rope_table

aot = pytest.importorskip("v4kernels.aot", reason="this Triton has no ahead-of-time compiler interface")

CASES = {case.name: case for case in aot_cases.cases()}
TABLE = aot.read_table()
SCAN_KEYS = "fp8" if aot.too_old(CASES["index_scan/fp4-64h-1t"]) else "fp4"


def test_names_are_unique():
    assert len(CASES) == len(aot_cases.cases())


@pytest.mark.parametrize("version", TABLE)
def test_table_is_complete_and_clean(version):
    """Each case on each of its architectures; no local memory; within shared and tensor memory."""
    release = tuple(int(part) for part in version.split(".")[:2])
    rows = TABLE[version]
    for case in CASES.values():
        kernel, variant = case.name.split("/")
        known = [
            v
            for (k, prefix), v in aot_cases.OLDEST_TRITON.items()
            if k == kernel and variant.startswith(prefix)
        ]
        if any(release < oldest for oldest in known):
            continue
        for arch, instruction in case.instruction.items():
            row = rows[f"{case.name}/sm_{arch}"]
            assert row["local_instructions"] == 0, (case.name, arch)
            assert row["shared_bytes"] <= aot.SHARED_LIMIT_BYTES
            assert row["tensor_columns"] <= aot.TENSOR_MEMORY_COLUMNS
            assert (row["matrix_instructions"] > 0) == bool(instruction), (case.name, arch)


def test_unsupported_pairs_have_no_case():
    """What cannot exist is declared and not compiled."""
    for (kernel, variant, arch), reason in aot_cases.UNSUPPORTED.items():
        assert reason
        kernels = ("whole", "halves") if kernel == "attention" else (kernel,)
        for name, case in CASES.items():
            if name.split("/")[0] in kernels and name.split("/")[1].startswith(variant):
                assert arch not in case.instruction, name


def test_fp32_work_of_the_scan_is_in_the_code():
    """ReLU and weighted sum are at least two FP32 instructions per head, key and token, packed pairs
    counted once.

    A thread of the 128 owns one key on sm_100: 64 heads make 64 maxima and 64 multiply-adds (32 if
    packed in pairs).
    """
    rows = TABLE.get(triton.__version__)
    if rows is None:
        pytest.skip(f"no table for Triton {triton.__version__}: make aot writes it")
    one, four = (rows[f"index_scan/{SCAN_KEYS}-64h-{t}t/sm_100"]["fp32_instructions"] for t in (1, 4))
    assert one >= 64 + 32
    assert four >= 4 * (64 + 32)


def test_compiles_here():
    """The covering set, each kernel by format and architecture, in processes without the interpreter."""
    units = sum(len(case.instruction) for case in CASES.values() if case.covering and not aot.too_old(case))
    command = [sys.executable, "-m", "v4kernels.aot"]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith(f"{units} compiled"), done.stderr


class Recorder:
    """Stands in for a kernel and keeps the constants of its launches."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append(options)


def assert_has_case(kernel, launches):
    assert launches
    known = [case for case in CASES.values() if case.name.startswith(kernel + "/")]
    for launch in launches:
        constants = {k: v for k, v in launch.items() if k not in ("num_warps", "num_stages")}
        matching = [case for case in known if case.constants == constants]
        assert matching, f"{kernel} is launched with {constants}, which no case compiles"
        assert launch["num_warps"] == matching[0].num_warps
        assert launch.get("num_stages", 3) == matching[0].num_stages


@pytest.fixture
def record(monkeypatch):
    def install(module, name):
        recorder = Recorder()
        monkeypatch.setattr(module, name, recorder)
        return recorder.launches

    return install


def zeros(*shape, dtype=torch.int32):
    return torch.zeros(*shape, dtype=dtype)


@pytest.mark.parametrize("fmt", [layouts.INDEX_FP8, layouts.INDEX_FP4], ids=lambda f: f.name)
@pytest.mark.parametrize("heads", [32, 64])
@pytest.mark.parametrize("tokens", [1, 8])
def test_index_scan_launches_have_cases(record, fmt, heads, tokens):
    launches = record(index_scan, "index_scan_kernel")
    q = zeros(tokens, heads, fmt.data_bytes, dtype=torch.uint8)
    scale = zeros(tokens, heads, 4, dtype=torch.uint8) if fmt is layouts.INDEX_FP4 else None
    cache = zeros(1, fmt.page_bytes(64), dtype=torch.uint8)
    index_scan.index_scan(
        q,
        scale,
        torch.zeros(tokens, heads),
        cache,
        zeros(1, 1),
        zeros(1),
        torch.tensor([0, tokens], dtype=torch.int32),
        zeros(tokens),
        fmt=fmt,
        page_entries=64,
        max_visible=64,
        tokens_per_group=tokens,
    )
    assert_has_case("index_scan", launches)


def test_topk_launches_have_cases(record):
    names = ("count_kernel", "split_kernel", "settle_kernel")
    launches = {name: record(topk, name) for name in names}
    for rows, columns in ((1, 1000), (1, 1 << 20), (4, 1 << 18)):
        topk.topk(torch.empty(rows, columns), zeros(rows), 512)
    for name, seen in launches.items():
        assert_has_case(name.removesuffix("_kernel"), seen)


@pytest.mark.parametrize("form", ["whole", "halves"])
@pytest.mark.parametrize("heads", [64, 128])
def test_attention_launches_have_cases(record, form, heads):
    launches, merges = record(attention, form + "_kernel"), record(attention, "combine_kernel")
    data = zeros(1, layouts.FP8_584.page_bytes(256), dtype=torch.uint8)
    window = layouts.PagedCache(data, layouts.FP8_584, 256)
    q = zeros(1, heads, 512, dtype=torch.bfloat16)
    for splits in (1, 4):
        swa_attention.swa_attention(
            q, torch.zeros(heads), window, zeros(1, 128), form=form, num_splits=splits
        )
    assert_has_case(form, launches)
    assert_has_case("combine", merges)


@pytest.mark.parametrize("activation", moe_grouped_gemm.ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 20, 40, 100])
def test_moe_launches_have_cases(record, activation, rows):
    launches = record(moe_grouped_gemm, "grouped_gemm_kernel")
    element = {"fp8": torch.float8_e4m3fn, "fp4": torch.uint8, "bf16": torch.bfloat16}[activation]
    x = torch.zeros(rows, 64 if activation == "fp4" else 128).to(element)
    moe_grouped_gemm.grouped_gemm(
        x,
        None if activation == "bf16" else zeros(rows, 4, dtype=torch.uint8),
        zeros(1, 128, 64, dtype=torch.uint8),
        zeros(1, 128, 4, dtype=torch.uint8),
        moe_grouped_gemm.plan_blocks([rows]),
        activation=activation,
    )
    assert_has_case("grouped_gemm", launches)


def test_compressor_launches_have_cases(record):
    entries, states = record(compressor, "compress_kernel"), record(compressor, "store_states_kernel")
    shape = shapes.V4_FLASH.csa_compressor(4)
    cache = layouts.PagedCache(zeros(1, 37_440, dtype=torch.uint8), layouts.FP8_584, 64)
    for ring in (8, 16):
        compressor.compress(
            torch.zeros(4, shape.state_width),
            torch.zeros(1, ring, shape.state_width),
            torch.zeros(4, 1024),
            torch.zeros(512),
            rope_table(4, 160000.0),
            compressor.plan([4], [0], [0], 4, zeros(1, 1), 64),
            cache,
            shape,
        )
    assert_has_case("compress", entries)
    assert_has_case("store_states", states)


@pytest.mark.parametrize("tokens", [1, 2000])
def test_mhc_launches_have_cases(record, tokens):
    launches = {name: record(mhc, name + "_kernel") for name in ("mix", "collapse", "expand")}
    x = zeros(tokens, 4, 1024, dtype=torch.bfloat16)
    out, post, comb = mhc.collapse(x, torch.zeros(24, 4096), torch.zeros(24), torch.zeros(3))
    mhc.expand(x, out, post, comb)
    for name, seen in launches.items():
        assert_has_case(name, seen)


@pytest.mark.parametrize("name", shapes.MODELS)
def test_norm_rope_launches_have_cases(record, name):
    launches = record(norm_rope, "norm_rope_kernel")
    m = shapes.model(name)
    for width in (m.hidden, m.q_lora_rank):
        row = zeros(1, width, dtype=torch.bfloat16)
        norm_rope.norm_rope(row, weight=torch.zeros(width), norm="weighted", quantise=True)
    for tp in (1, 8):
        row = zeros(1, m.o_groups // tp * m.o_lora_rank, dtype=torch.bfloat16)
        norm_rope.norm_rope(row, quantise=True)
    assert_has_case("norm_rope", launches)


def test_fp4_is_refused_on_hopper(monkeypatch):
    """The launcher says which device and which way out, instead of emulating."""
    monkeypatch.setattr(checks, "capability", lambda device: 90)
    w = zeros(1, 128, 64, dtype=torch.uint8)
    scale = zeros(1, 128, 4, dtype=torch.uint8)
    x = torch.zeros(1, 128).to(torch.float8_e4m3fn)
    blocks = moe_grouped_gemm.plan_blocks([1])
    with pytest.raises(checks.KernelInputError, match=r"need sm_100.*use bf16"):
        moe_grouped_gemm.grouped_gemm(x, zeros(1, 4, dtype=torch.uint8), w, scale, blocks, activation="fp8")
    q = zeros(1, 64, 64, dtype=torch.uint8)
    with pytest.raises(checks.KernelInputError, match="use index_fp8"):
        index_scan.index_scan(
            q,
            zeros(1, 64, 4, dtype=torch.uint8),
            torch.zeros(1, 64),
            zeros(1, 4352, dtype=torch.uint8),
            zeros(1, 1),
            zeros(1),
            zeros(2),
            zeros(1),
            fmt=layouts.INDEX_FP4,
            page_entries=64,
            max_visible=1,
            tokens_per_group=1,
        )

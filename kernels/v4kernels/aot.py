"""Ahead-of-time compilation to real machine code, without a GPU: `python -m v4kernels.aot`.

Compiles cases for sm_90, sm_100 and sm_103 with the `ptxas` that Triton ships, disassembles the result
and holds it to rules: no spill (no local-memory instruction), shared and tensor memory within the
device, the tensor-core instruction the kernel was written for. Without options the covering set is
compiled and compared with the committed table `aot_table.json`; `--all` compiles everything and
rewrites this Triton version's part of the table.

The table holds registers, shared memory, tensor-memory columns and instruction counts per case and
architecture. A covering run fails where a figure has grown by more than `GROWTH`. Nothing here says how
fast a kernel is.

A release may ship a disassembler that is older than its compiler (3.6 cannot read sm_103): name newer ones
with TRITON_NVDISASM_PATH and TRITON_CUOBJDUMP_PATH, those of a newer Triton will do.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Container
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from v4kernels import aot_case, aot_cases, checks

TABLE = Path(__file__).with_name("aot_table.json")
GROWTH = 1.15
SHARED_LIMIT_BYTES = 232_448  # 227 KiB a block, sm_90 to sm_103
TENSOR_MEMORY_COLUMNS = 512
OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)", re.MULTILINE)
LOCAL = ("LDL", "STL")
FP32 = ("FADD", "FFMA", "FMUL", "FMNMX", "FADD2", "FFMA2", "FMUL2", "FMNMX3", "FSEL", "FSETP", "MUFU")
MATRIX = ("HGMMA", "QGMMA", "HMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA")


@dataclass(frozen=True, slots=True)
class Code:
    """What came out of one compilation. Instruction counts are static: a loop body counts once."""

    registers: int
    shared_bytes: int
    tensor_columns: int
    instructions: int
    fp32_instructions: int
    matrix_instructions: int
    local_instructions: int


class AotError(Exception):
    """A case does not compile, or compiles to something the kernel must not be."""


def _listing(tool: str, option: str, cubin: str) -> str:
    """What a tool that Triton ships, or that its environment names, says of a binary."""
    program = getattr(knobs.nvidia, tool)
    done = subprocess.run([program.path, option, cubin], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AotError(
            f"{tool} {program.version} cannot read the binary ({' '.join(done.stderr.split())[:200]}): "
            f"name a newer one with TRITON_{tool.upper()}_PATH"
        )
    return done.stdout


def compile_case(case: aot_case.Case, arch: int) -> Code:
    """Compile, disassemble and check one case; raise `AotError` with the rule it breaks."""
    names = case.kernel.arg_names
    missing = [n for n in names if n not in case.constants and n not in case.types]
    if missing:
        raise AotError(f"{case.name}: no type for {', '.join(missing)}; add it to the case")
    signature = {n: "constexpr" if n in case.constants else case.types[n] for n in names}
    aligned = [n for n in names if signature[n].startswith("*") or n in case.aligned]
    source = ASTSource(
        case.kernel,
        signature,
        constexprs={(names.index(n),): v for n, v in case.constants.items()},
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as error:  # the compiler raises many kinds; the case and the cause are what matters
        raise AotError(
            f"{case.name} sm_{arch}: does not compile: {str(error).strip().splitlines()[-1:]}"
        ) from error
    instruction = case.instruction[arch]
    if instruction and instruction not in compiled.asm["ptx"]:
        raise AotError(f"{case.name} sm_{arch}: no {instruction} in the code: it fell back to another unit")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        try:
            usage = re.search(r"REG:(\d+)", _listing("cuobjdump", "-res-usage", file.name))
            opcodes = Counter(OPCODE.findall(_listing("nvdisasm", "-c", file.name)))
        except AotError as error:
            raise AotError(f"{case.name} sm_{arch}: {error}") from error
    if usage is None or not opcodes:
        raise AotError(f"{case.name} sm_{arch}: the disassembler's output was not understood")
    code = Code(
        registers=int(usage[1]),
        shared_bytes=compiled.metadata.shared,
        tensor_columns=getattr(compiled.metadata, "tmem_size", 0) or 0,
        instructions=sum(opcodes.values()),
        fp32_instructions=sum(opcodes[o] for o in FP32),
        matrix_instructions=sum(opcodes[o] for o in MATRIX),
        local_instructions=sum(opcodes[o] for o in LOCAL),
    )
    if code.local_instructions:
        raise AotError(
            f"{case.name} sm_{arch}: {code.local_instructions} local-memory instructions: it spills"
        )
    if code.shared_bytes > SHARED_LIMIT_BYTES:
        raise AotError(
            f"{case.name} sm_{arch}: {code.shared_bytes} bytes shared, the limit is {SHARED_LIMIT_BYTES}"
        )
    if code.tensor_columns > TENSOR_MEMORY_COLUMNS:
        raise AotError(f"{case.name} sm_{arch}: {code.tensor_columns} tensor-memory columns, there are 512")
    return code


def grown(key: str, new: Code, old: dict[str, int]) -> list[str]:
    """Figures that are above `GROWTH` times the committed ones."""
    return [
        f"{key}: {name} was {old[name]}, is {value}"
        for name, value in asdict(new).items()
        if value > GROWTH * old.get(name, value)
    ]


def read_table() -> dict[str, dict[str, dict[str, int]]]:
    """Triton version to case and architecture to figures."""
    table: dict[str, dict[str, dict[str, int]]] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return table


def too_old(case: aot_case.Case) -> bool:
    """True where this Triton release is declared unable to compile the case."""
    kernel, variant = case.name.split("/")
    return any(
        kernel == name and variant.startswith(prefix) and checks.triton_release() < oldest
        for (name, prefix), oldest in aot_cases.OLDEST_TRITON.items()
    )


def _attempt(job: tuple[int, int]) -> tuple[Code | None, str]:
    index, arch = job
    try:
        return compile_case(aot_cases.cases()[index], arch), ""
    except AotError as error:
        return None, str(error)


def compile_all(
    chosen: Container[str], archs: Container[int], jobs: int
) -> tuple[dict[str, Code], list[str]]:
    """(code per case and architecture, what is wrong) of the cases whose names are chosen."""
    work = [
        (index, case.name, arch)
        for index, case in enumerate(aot_cases.cases())
        if case.name in chosen and not too_old(case)
        for arch in sorted(case.instruction)
        if arch in archs
    ]
    todo = [(index, arch) for index, _, arch in work]
    if jobs == 1:
        results = [_attempt(job) for job in todo]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(_attempt, todo))
    codes = {
        f"{name}/sm_{arch}": code
        for (_, name, arch), (code, _) in zip(work, results, strict=True)
        if code is not None
    }
    return codes, [reason for _, reason in results if reason]


def main(argv: list[str] | None = None) -> int:
    """0 good, 1 a rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m v4kernels.aot", description=__doc__.split("\n\n")[0])
    parser.add_argument("--all", action="store_true", help="every configuration; rewrites the table")
    parser.add_argument("--arch", type=int, action="append", choices=aot_case.ARCHS, help="only these")
    parser.add_argument("--kernel", action="append", help="only cases whose name starts with this")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    options = parser.parse_args(argv)
    chosen = {c.name for c in aot_cases.cases() if options.all or c.covering}
    chosen = {name for name in chosen if name.startswith(tuple(options.kernel or [""]))}
    codes, wrong = compile_all(chosen, options.arch or aot_case.ARCHS, options.jobs)
    table = read_table()
    known = table.get(triton.__version__, {})
    if options.all:
        whole = not (options.arch or options.kernel)
        merged = ({} if whole else known) | {key: asdict(code) for key, code in codes.items()}
        table[triton.__version__] = dict(sorted(merged.items()))
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
        print(f"Wrote {TABLE.name}", file=sys.stderr)
    else:
        wrong += [
            line for key, code in codes.items() if key in known for line in grown(key, code, known[key])
        ]
    for line in wrong:
        print(line)
    print(f"{len(codes)} compiled with Triton {triton.__version__}, {len(wrong)} wrong", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

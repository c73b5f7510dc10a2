"""`make bench`: whole processes, from parquet to result.json and calls.parquet, measured from outside.

What is timed and how to read the file is in bench/README.md. Standard library only, so that the measuring
process takes nothing from the measured one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
from measure import Cost, run, summary
from peer import Peer
from sets import SETS, BenchSet

REPO = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
GROWTH_CALLS = (62_500, 250_000, 1_000_000)
GROWTH_SESSIONS_PER_S = 0.003  # about 0.2 calls/s: below what the default deployment serves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=REPO.parent / "shared/data", help="folder of the raw traces"
    )
    parser.add_argument("--sets", default="M,C", help="which sets (default: M,C)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of each way (default: 3)")
    parser.add_argument(
        "--growth",
        type=int,
        nargs="*",
        metavar="CALLS",
        help="also replay synthetic traces of so many calls (default sizes: up to 1,000,000)",
    )
    parser.add_argument(
        "--aisimulate",
        type=Path,
        nargs="?",
        const=REPO / ".aisimulate-venv",
        metavar="VENV",
        help="also replay each set with NVIDIA's AISimulate, turn by turn (default venv: .aisimulate-venv)",
    )
    parser.add_argument("--output", type=Path, default=REPO / "bench/results.json")
    options = parser.parse_args()

    version = subprocess.run([str(BIN / "v4sim"), "--version"], capture_output=True, text=True, check=True)
    report: dict[str, Any] = {
        "schema_version": 1,
        "machine": machine.describe(),
        "program": version.stdout.strip(),
        "sets": {},
    }
    report["reference_loop_s"] = [round(machine.reference_loop_s(), 3)]
    with tempfile.TemporaryDirectory(prefix="v4sim-bench-") as folder:
        for name in filter(None, options.sets.split(",")):
            report["sets"][name] = bench_set(SETS[name], options, Path(folder))
        if options.growth is not None:
            sizes = options.growth or GROWTH_CALLS
            report["growth"] = [growth(calls, Path(folder)) for calls in sizes]
    report["reference_loop_s"].append(round(machine.reference_loop_s(), 3))
    options.output.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    say(f"Wrote {options.output}")


def bench_set(bench: BenchSet, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    repeats: int = options.repeats
    raw = bench.unpack(options.data, scratch)
    trace = scratch / f"{bench.name}.parquet"
    ways: dict[str, list[Cost]] = {"import": [], "replay": [], "replay_with_report": []}
    checksums = set()
    peer = Peer.on(options.aisimulate, bench, raw, scratch) if options.aisimulate else None
    for turn in range(repeats):
        ways["import"].append(import_trace(bench, raw, trace))
        for way, flags in (("replay", ["--no-report"]), ("replay_with_report", [])):
            run_folder = scratch / f"{bench.name}-{way}"
            ways[way].append(replay(trace, run_folder, [*bench.replay, *flags]))
            checksums.add(sha256(run_folder / "calls.parquet"))
        if peer:
            peer.turn(json.loads((scratch / f"{bench.name}-replay/result.json").read_text()))
        latest = {
            **ways,
            **({f"aisimulate {way}": costs for way, costs in peer.ways.items()} if peer else {}),
        }
        say(
            f"{bench.name} {turn + 1}/{repeats}: "
            + ", ".join(f"{w} {c[-1].wall_s:.2f} s" for w, c in latest.items())
        )
    if len(checksums) != 1:
        sys.exit(f"set {bench.name}: calls.parquet differs between runs: {sorted(checksums)}")
    ways["import_and_replay"] = [a + b for a, b in zip(ways["import"], ways["replay"], strict=True)]
    return {
        "command": ["v4sim", "replay", f"{bench.name}.parquet", *bench.replay, "--no-report"],
        "work": work(scratch / f"{bench.name}-replay"),
        "calls_parquet_sha256": checksums.pop(),
        "ways": {way: summary(costs) for way, costs in ways.items()},
        **({"aisimulate": peer.section(ways)} if peer else {}),
    }


def growth(calls: int, scratch: Path) -> dict[str, Any]:
    """Synthetic sessions at one arrival rate: more calls make the run longer, not denser."""
    trace, run_folder = scratch / f"synth-{calls}.parquet", scratch / f"synth-{calls}-run"
    made = ["--calls", str(calls), "--seed", "1", "--arrivals", str(GROWTH_SESSIONS_PER_S)]
    run([str(BIN / "v4traces"), "synth", *made, "-o", str(trace), "--force"])
    cost = replay(trace, run_folder, ["--arrivals", "trace", "--no-report"])
    say(f"growth {calls:,} calls: {cost.wall_s:.1f} s, {cost.peak_rss_mb:.0f} MB")
    return {"calls": calls, **cost.as_json(), "work": work(run_folder)}


def import_trace(bench: BenchSet, raw: Path, trace: Path) -> Cost:
    return run([str(BIN / "v4traces"), "import", bench.importer, str(raw), "-o", str(trace), "--force"])


def replay(trace: Path, run_folder: Path, flags: list[str]) -> Cost:
    return run([str(BIN / "v4sim"), "replay", str(trace), "-o", str(run_folder), "--force", *flags])


def work(run_folder: Path) -> dict[str, Any]:
    """What was simulated, from the run's own result."""
    result = json.loads((run_folder / "result.json").read_text())
    full = result["full"]
    return {
        "calls": full["calls"],
        "output_tokens": full["tokens"]["output"],
        "prompt_tokens": full["tokens"]["prompt"],
        "steps": result["totals"]["steps"],
        "hit_ratio": full["hit"]["token_ratio"],
        "simulated_s": result["totals"]["simulated_s"],
    }


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

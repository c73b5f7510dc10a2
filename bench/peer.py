"""The same work by NVIDIA's AISimulate (a Rust core behind Python), in the same run, turn by turn with v4sim.

Its configuration is made from v4sim's own result: the topology, pages, chunk, sequences and draft acceptance
that v4sim resolved. What it cannot be given is named in the section. Measured are its library
(`peer_replay.py`, the fastest way), its command line (as its users run it) and its imports alone. It reads
the raw trace, so it stands against v4sim's import and replay together. The benchmark stops if it did not
simulate the same calls and tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Cost, run, summary
from sets import BenchSet

IMPORTS = "import aisimulate.compiler, aisimulate.runner"  # as peer_replay.py
OUTPUT_SLACK = 1e-5  # calls without output are one token in v4sim and none in AISimulate
# Its names for what the sets use.
MODELS = {"v4-flash": "deepseek-ai/DeepSeek-V4-Flash"}
HARDWARE = {"b200": "b200_sxm"}
NOT_GIVEN = (
    "prefill chunk, by the command line: it reaches SGLang only with the host loop, which refuses attention "
    "DP, and is 8,192 tokens a rank; the library gets v4sim's",
    "window pool: one KV pool of as many tokens",
    "draft acceptance by phase: the mean of v4sim's run",
    "SGLang's version: it prices 0.5.14 by its own tables, v4sim 0.5.23 by its profile",
    "host work before the engine: none, its default",
    "rows of calls: it writes one report, v4sim calls.parquet and timeline.json too",
)
NOT_GIVEN_OF = {"weka": ("models: sessions that use one they do not declare are refused; it is declared",)}


@dataclass
class Peer:
    """AISimulate in its venv, on one set."""

    venv: Path
    bench: BenchSet
    source: Path
    scratch: Path
    ways: dict[str, list[Cost]] = field(default_factory=lambda: {"library": [], "command": [], "imports": []})
    spent: list[dict[str, float]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def on(cls, venv: Path, bench: BenchSet, raw: Path, scratch: Path) -> Peer:
        """Its input is made here, outside every time."""
        if not (venv / "bin/python").exists():
            sys.exit(f"{venv} has no Python; make it with: make bench BENCH_ARGS=--aisimulate")
        source = raw
        if bench.importer == "weka":
            source = scratch / f"{bench.name}-peer"
            source.mkdir()
            for path in sorted(raw.iterdir()):
                session = declared(json.loads(path.read_text()))
                (source / path.name).write_text(json.dumps(session))
        return cls(venv, bench, source, scratch)

    def turn(self, result: dict[str, Any]) -> None:
        """One repetition of each way, on the deployment of v4sim's `result`."""
        config, output = (
            self.scratch / f"{self.bench.name}-peer.json",
            self.scratch / f"{self.bench.name}-peer",
        )
        config.write_text(json.dumps(configuration(result, self.source, self.bench.importer)))
        python, library = str(self.venv / "bin/python"), output.with_suffix(".library.json")
        driver = str(Path(__file__).with_name("peer_replay.py"))
        chunk = str(rank_limits(result)["chunk_tokens"])
        self.ways["library"].append(run([python, driver, str(config), chunk, str(library)]))
        command = [str(self.venv / "bin/aisimulate"), "predict", "--config", str(config)]
        folder = output.with_suffix(".command")
        command += ["--output-dir", str(folder), "--overwrite", "--format", "json"]
        self.ways["command"].append(run(command))
        self.ways["imports"].append(run([python, "-c", IMPORTS]))
        measured = json.loads(library.read_text())
        self.report = measured["report"]
        self.spent.append({**measured["spent"], "core_s": self.report["wall_time_ms"] / 1e3})
        for report in (self.report, json.loads((folder / "prediction.json").read_text())):
            require_equal_work(work(report), result, self.bench.name)

    def section(self, ours: dict[str, list[Cost]]) -> dict[str, Any]:
        """For results.json: its times, its work, and how often v4sim's median goes into its own."""
        ways = {way: summary(costs) for way, costs in self.ways.items()}
        return {
            "ways": ways,
            "work": work(self.report),
            "library_spent": [{key: round(s, 3) for key, s in spent.items()} for spent in self.spent],
            "not_given": [*NOT_GIVEN, *NOT_GIVEN_OF.get(self.bench.importer, ())],
            "ratio": {
                f"{theirs}_to_{way}": ratio(ways[theirs], summary(ours[way]))
                for theirs in ("library", "command")
                for way in ("import_and_replay", "replay")
            },
        }


def configuration(result: dict[str, Any], source: Path, trace_format: str) -> dict[str, Any]:
    """AISimulate's configuration for the deployment and workload that v4sim's `result` says it ran.

    Its names of trace formats are those of v4sim's importers.
    """
    deployment, limits = result["manifest"]["deployment"], rank_limits(result)
    parallel, sessions = deployment["parallel"], result["manifest"]["workload"]["sessions"]
    page, speculation = deployment["engine"]["page_tokens"], deployment["speculation"]
    if speculation["kind"] != "mtp":
        sys.exit(
            f"speculation.kind = {speculation['kind']!r}: AISimulate is given MTP only; use a set with MTP"
        )
    load: dict[str, Any] = {"type": "trace_timestamps"}
    if sessions is not None:
        load["agentic_lanes"] = sessions
    worker = {
        "parallelism": {
            "tensor": parallel["attention_tp"],
            "attention_data": parallel["attention_dp"],
            "moe_expert": parallel["ep"],
        },
        "scheduler": {"max_batched_tokens": limits["chunk_tokens"], "max_sequences": limits["sequences"]},
        "kv_cache": {
            "block_size": page,
            "capacity": {"type": "fixed", "blocks": limits["kv_tokens"] // page},
        },
    }
    return {
        "traffic": {
            "source": {"type": "trace", "paths": [str(source)], "format": trace_format},
            "load": load,
        },
        "engine": {
            "mode": "aggregated",
            "model": _named(MODELS, deployment["model"]["name"]),
            "hardware": _named(HARDWARE, deployment["hardware"]["gpu"]),
            "backend": deployment["engine"]["kind"],
            "speculation": {
                "kind": "mtp",
                "params": {"depth": speculation["draft_tokens"]},
                "expected_accepted_tokens": result["full"]["speculation"]["mean_accepted_length"] - 1.0,
            },
            "workers": {"aggregated": worker},
        },
    }


def _named(names: dict[str, str], own: str) -> str:
    if own not in names:
        sys.exit(
            f"AISimulate's name of {own!r} is not known here: add it to bench/peer.py, or take another set"
        )
    return names[own]


def rank_limits(result: dict[str, Any]) -> dict[str, int]:
    """What v4sim gave a rank. Its keys of chunk and running calls are SGLang's: for the whole DP group."""
    deployment = result["manifest"]["deployment"]
    engine, ranks = deployment["engine"], deployment["parallel"]["attention_dp"]
    return {
        "chunk_tokens": engine["chunked_prefill_tokens"] // ranks,
        "sequences": engine["max_running"] // ranks,
        "kv_tokens": min(pool["capacity_tokens"] for pool in result["full"]["pools"] if pool["name"] == "kv"),
    }


def declared(session: dict[str, Any]) -> dict[str, Any]:
    """The WEKA session with every model that it uses in its declaration."""
    return {**session, "models": sorted({*session["models"], *_models(session["requests"])})}


def _models(requests: list[dict[str, Any]]) -> Iterator[str]:
    for request in requests:
        if request["type"] == "subagent":
            yield from _models(request["requests"])
        else:
            yield request["model"]


def work(report: dict[str, Any]) -> dict[str, Any]:
    """What AISimulate says it simulated; it does not report steps."""
    return {
        "calls": report["completed_requests"],
        "output_tokens": report["total_output_tokens"],
        "prompt_tokens": report["total_input_tokens"],
        "hit_ratio": round(report["prefix_cache_reused_ratio"], 6),
        "simulated_s": round(report["duration_ms"] / 1e3, 3),
    }


def require_equal_work(theirs: dict[str, Any], result: dict[str, Any], name: str) -> None:
    ours = result["totals"]
    unlike = [key for key in ("calls", "prompt_tokens") if theirs[key] != ours[key]]
    if abs(theirs["output_tokens"] - ours["output_tokens"]) > OUTPUT_SLACK * ours["output_tokens"]:
        unlike.append("output_tokens")
    if unlike:
        pairs = ", ".join(f"{key} {theirs[key]} for {ours[key]}" for key in unlike)
        sys.exit(f"set {name}: AISimulate did other work than v4sim ({pairs}); their times do not compare")


def ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, float]:
    """Above 1: v4sim takes less."""
    return {
        key: round(theirs[key] / ours[key], 2) for key in ("median_wall_s", "median_cpu_s", "peak_rss_mb")
    }

"""The two sets that are timed: where the raw trace is, how it is imported, and what replays it."""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

MTP = ("--set", "speculation.kind=mtp", "--set", "speculation.draft_tokens=1")


@dataclass(frozen=True, slots=True)
class BenchSet:
    name: str
    importer: str
    raw: Path  # relative to the data folder
    replay: tuple[str, ...]

    def unpack(self, data: Path, scratch: Path) -> Path:
        """The raw input as a user has it on disk, decompressed. Not part of any time."""
        source = data / self.raw
        if not source.exists():
            sys.exit(f"{source} does not exist; name the folder of the public traces with --data DIR")
        target = scratch / f"{self.name}-raw"
        if source.name.endswith(".jsonl.xz"):
            target = target.with_suffix(".jsonl")
            with lzma.open(source) as packed, target.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
            return target
        wanted = set((source.parent / "bench-40.txt").read_text().split())
        target.mkdir()
        with tarfile.open(source) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in wanted else None
                if content is not None:
                    (target / name).write_bytes(content.read())
        missing = wanted - {path.name for path in target.iterdir()}
        if missing:
            sys.exit(f"{source} lacks {len(missing)} of the sessions in bench-40.txt, such as {min(missing)}")
        return target


SETS = {
    "M": BenchSet(
        name="M",
        importer="mooncake",
        raw=Path("mooncake-conversation.jsonl.xz"),
        replay=(
            *("--deployment", "8xb200-v4-flash-dp8-ep8-sglang"),
            *("--arrivals", "trace"),
            *MTP,
        ),
    ),
    "C": BenchSet(
        name="C",
        importer="weka",
        raw=Path("weka/sessions.tar.xz"),
        replay=(
            *("--deployment", "4xb200-v4-flash-dpa4-ep4-sglang"),
            *("--set", "engine.kv_tokens_per_rank=3840000"),
            *("--sessions", "32"),
            *MTP,
        ),
    ),
}

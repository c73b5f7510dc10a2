"""One replay by AISimulate's library, as a whole process: `python peer_replay.py CONFIG CHUNK_TOKENS OUTPUT`.

Runs in AISimulate's own venv. Its command line does the same with more around it: a supervising process that
asks for the memory every 50 ms, a lower priority, a second reading of the trace for a plan of resources.
CHUNK_TOKENS is SGLang's prefill chunk of a rank, which its engine takes and its configuration has no place
for. OUTPUT gets its report and how the seconds were spent.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    config_path, chunk_tokens, output = sys.argv[1:]
    start = time.perf_counter()
    from aisimulate.compiler import prediction_to_replay_spec
    from aisimulate.config.cli import CorePredictionConfig
    from aisimulate.runner import EngineReplayRunnerFactory
    from aisimulate.sweeper.replay import ReplayOutputRequirements

    imported = time.perf_counter()
    config = CorePredictionConfig.model_validate_json(Path(config_path).read_text())
    spec = prediction_to_replay_spec(config)
    spec.backend_deployment.agg_engine_args["sglang"] = {"chunked_prefill_size": int(chunk_tokens)}
    runner = EngineReplayRunnerFactory().create(0)
    report = runner.run(spec, output_requirements=ReplayOutputRequirements(include_raw_report=True))
    runner.close()
    ran = time.perf_counter()
    native = report.metadata["native_report"]
    spent = {"imports_s": imported - start, "load_and_replay_s": ran - imported}
    Path(output).write_text(json.dumps({"report": native, "spent": spent}))


if __name__ == "__main__":
    main()

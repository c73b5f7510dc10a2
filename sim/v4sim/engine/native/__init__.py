"""An engine's own scheduler inside the simulator: it decides, the simulator prices and keeps the time.

`engine.scheduler = "vllm-native"` or `"sglang-native"` asks the engine that is installed beside v4sim (its
`Scheduler` with its cache, on the CPU, without weights) what each step of each rank computes. Everything else
is as with a modelled scheduler: arrivals, routing, lockstep, prices, accepted drafts, reports.

base            what is asked of an engine, in plain numbers
vllm_engine     the installed vLLM behind that, and the only module that imports it
groups          V4's layers as vLLM's cache specs
sglang_engine   the installed SGLang behind that
sglang_loop     its scheduler object, made without processes, and the only module that imports it
content         names of tokens and blocks from the prefix structure of a trace
rank, rules     an engine's decisions as the verbs of a rank, where one choice is a whole step (vLLM)
prefill_first   the same where a step is a prefill or a decode, and the ranks agree in between (SGLang)
"""

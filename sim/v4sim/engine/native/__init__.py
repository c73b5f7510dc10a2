"""An engine's own scheduler inside the simulator: it decides, the simulator prices and keeps the time.

`engine.scheduler = "vllm-native"` asks the vLLM that is installed beside v4sim (its `Scheduler` with
its KV cache manager, on the CPU, without weights) what each step of each rank computes. Everything else
is as with a modelled scheduler: arrivals, routing, lockstep, prices, accepted drafts, reports.

base          what is asked of an engine, in plain numbers
vllm_engine   the installed vLLM behind that, and the only module that imports it
groups        V4's layers as vLLM's cache specs
content       block hashes from the prefix structure of a trace, without token ids
rank, rules   the engine's decisions as the verbs of a rank
"""

"""Triton kernels that do on the device what DeepSeek-V4 does, their torch references and their counts.

One noun, one name: `v4kernels.<name>` holds the Triton kernel, its launcher and its `Work` count,
`v4kernels.reference.<name>` the same operation in plain torch, `tests/kernels/test_<name>.py` the proof.
Nothing here imports the simulator; importing the package itself needs neither torch nor triton.
"""

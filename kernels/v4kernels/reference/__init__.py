"""Plain torch references, under the names of the kernels they check. Slow, fp32 or fp64, easy to read."""

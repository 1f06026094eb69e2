"""MediaTek's NPU ahead of time: activations measured, chunks quantised as graphs, compiled, and run where the NPU is simulated."""

"""INT8 checkpoints: SmoothQuant, GPTQ, calibration, and writing the result."""

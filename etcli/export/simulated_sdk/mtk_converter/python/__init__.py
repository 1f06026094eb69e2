"""SIMULATED: see `mtk_converter`."""

"""Figures, side by side in one run. Nothing here is asserted: absolute times depend on the machine."""

"""Figures for people: few digits, and units that fit."""

from __future__ import annotations


def glance(value: float) -> str:
    """Three digits, those at the end too: `1.40`, `350`, `2.10e-06`; thousands whole: `1234`."""
    # From 999.5 on three digits would be written as 1.00e+03.
    return f"{value:.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:#.3g}".removesuffix(".")


def size(value: float | None) -> str:
    """Bytes for people: `1.8 MiB`; empty when unknown."""
    if value is None:
        return ""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"

"""What the fixture ``make_checkout`` gives."""

from __future__ import annotations

from collections.abc import Callable

from harness.places import Places

MakeCheckout = Callable[[dict[str, list[str]]], Places]
"""Lays a checkout with the environments named, each holding the packages listed."""

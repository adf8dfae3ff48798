"""The rules themselves: each can be followed, in words that exist, and takes no setting for another."""

from __future__ import annotations

import pytest

from harness.explain.suspecting.rules import rules


def test_every_rule_can_be_followed() -> None:
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    for rule in rules():
        assert 0 <= rule.prior <= 1
        assert rule.spread in ("alike", "each", "any")
        assert rule.effect in ("", "inverse", "proportional", "square", "useful")
        assert rule.facts
        assert bool(rule.prior) == bool(rule.reason), rule.id
        assert not rule.reference or rule.reference.startswith("https://")


def test_directions_are_words_that_exist() -> None:
    for rule in rules():
        for condition in (*rule.facts, *rule.signs):
            assert condition.direction in ("", "up", "down", "to"), rule.id
            assert bool(condition.values) == (condition.direction == "to"), rule.id


@pytest.mark.parametrize("fact", ["execution.topology", "execution.log_every", "execution.devices", "execution.device"])
def test_a_setting_is_not_taken_for_another(fact: str) -> None:
    """ "topology" ends in "logy", and "devices" begins with "device"."""
    wanted = {
        "execution.topology": {"topology"},
        "execution.log_every": {"logging"},
        "execution.devices": {"topology", "fewer-devices"},
        "execution.device": {"device"},
    }
    assert {rule.id for rule in rules() if rule.names(fact) and not rule.otherwise} == wanted[fact]

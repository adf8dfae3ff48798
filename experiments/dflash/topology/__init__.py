"""The ways of putting target and drafter on devices."""

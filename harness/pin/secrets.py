"""What must never be written down: names and values that look like a password, a token or a key.

It would rather drop one thing too many: a variable that is missing from a fingerprint is unknown, a token that is in
one is public.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_WORDS = (
    "TOKEN", "KEY", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "SIGNATURE"
)  # fmt: skip
_HARMLESS = re.compile("TOKENIZER")
_CARD = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")  # a card's name, which is no secret

_KNOWN_VALUES = re.compile(
    r"""
    ://[^/\s@]+@                                        # credentials in a URL
    | \b(hf|api|ghp|gho|ghu|ghs|ghr|npm|pypi)[_-][A-Za-z0-9]{16,}   # Hugging Face, GitHub, package registries
    | \b(sk|pk|rk)[-_][A-Za-z0-9_-]{12,}                # OpenAI, Anthropic, Stripe
    | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,} | \bxox[a-z]-[\w-]{10,}
    | \b(AKIA|ASIA)[A-Z0-9]{16}\b | \bAIza[\w-]{30,}     # Amazon, Google
    | \beyJ[\w-]{10,}\.[\w-]+                           # a JSON web token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b(Bearer|Basic)\s+[A-Za-z0-9+/=._-]{8,}
    """,
    re.VERBOSE,
)
_SEPARATORS = re.compile(r"[\s,;:=\"'@?&]+")
_OPAQUE = re.compile(r"[A-Za-z0-9+_=.-]{32,}")


def name_is_secret(name: str) -> bool:
    """Whether a variable, a setting or an option of this name would hold a secret."""
    rest = _HARMLESS.sub("", name.upper())
    return any(word in rest for word in _WORDS)


def holds_secret(text: str) -> bool:
    """Whether a secret of a known form stands somewhere in ``text``; long opaque words are common in source code."""
    return _KNOWN_VALUES.search(text) is not None


def value_is_secret(value: str) -> bool:
    """Whether ``value`` is, or contains, what looks like a secret: of a known form, or long, opaque and no path."""
    return holds_secret(value) or any(_is_opaque(piece) for piece in _SEPARATORS.split(_CARD.sub("", value)))


def _is_opaque(piece: str) -> bool:
    mixed = any(c.isdigit() for c in piece) and any(c.isalpha() for c in piece)
    return mixed and "/" not in piece.strip("/") and _OPAQUE.fullmatch(piece) is not None


def redacted(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with every argument that looks like a secret, or follows an option that names one, hidden."""
    shown: list[str] = []
    expects_secret = False
    for argument in argv:
        option, sign, value = argument.partition("=")
        if expects_secret and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif sign and (_option_is_secret(option) or value_is_secret(value)):
            shown.append(f"{option}={HIDDEN}")
        else:
            shown.append(HIDDEN if value_is_secret(argument) else argument)
        expects_secret = not sign and argument.startswith("-") and _option_is_secret(argument)
    return tuple(shown)


def _option_is_secret(option: str) -> bool:
    """``--hf-token`` is one and ``--max-tokens`` is not: the last word counts, as it stands."""
    return re.split(r"[-_.]", option.upper())[-1] in _WORDS

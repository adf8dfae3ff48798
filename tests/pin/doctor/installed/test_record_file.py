"""RECORD, read back from what csv writes, and from what strangers may write."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.pin.doctor.installed.installation import Claim
from harness.pin.doctor.installed.record_file import parse_record
from tests.pin.doctor.wheels import record_digest

SITE, ROOT = "/env/lib/python3.11/site-packages", "/env"

_name = st.text(st.characters(exclude_characters="/\0\r", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda part: part not in (".", "..")
)
paths = st.lists(_name, min_size=1, max_size=4).map("/".join).filter(lambda path: not path.startswith("\ufeff"))
hashes = st.sampled_from(["sha256", "sha384", "sha512"]).flatmap(
    lambda name: st.binary(max_size=9).map(lambda data: (name, hashlib.new(name, data).digest()))
)


def written(rows: Iterable[tuple[str, ...]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@given(st.dictionaries(paths, st.none() | st.tuples(hashes, st.none() | st.integers(0, 1 << 40)), max_size=8))
def test_what_csv_writes_is_read_back(rows: dict[str, tuple[tuple[str, bytes], int | None] | None]) -> None:
    lines: list[tuple[str, ...]] = []
    expected = []
    for path, known in rows.items():
        (algorithm, digest), size = known or (("", b""), None)
        lines.append((path, f"{algorithm}={encoded(digest)}" if algorithm else "", "" if size is None else str(size)))
        expected.append(Claim(f"{SITE}/{path}", algorithm, encoded(digest), size))
    record = parse_record(written(lines), SITE, ROOT)
    assert record.claims == tuple(expected)
    assert (record.outside, record.problems) == ((), ())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_something_inside(data: bytes) -> None:
    for claim in parse_record(data, SITE, ROOT).claims:
        assert claim.path.startswith("/env/")
        assert "/../" not in claim.path
        assert not claim.path.endswith("/..")
        assert "\0" not in claim.path


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ("../../../bin/tool", "/env/bin/tool"),
        ("../../../bin/../share/x", "/env/share/x"),
        ("/env/bin/tool", "/env/bin/tool"),
        ("pkg//a.py", f"{SITE}/pkg/a.py"),
        ("./pkg/a.py", f"{SITE}/pkg/a.py"),
        ("pkg/x/../a.py", f"{SITE}/pkg/a.py"),
    ],
)
def test_paths_inside_the_environment(row: str, path: str) -> None:
    assert [claim.path for claim in parse_record(f"{row},,\n".encode(), SITE, ROOT).claims] == [path]


@pytest.mark.parametrize(
    "row",
    [
        "../../../../etc/passwd",
        "/etc/passwd",
        "//env/x",
        "/environment/x",
        "pkg/../../../../../etc/passwd",
        "/env/../etc/passwd",
        "../../..",
        "/",
    ],
)
def test_paths_that_leave_it_are_kept_as_they_are_written(row: str) -> None:
    record = parse_record(f"{row},sha256=abc,3\nok.py,,\n".encode(), SITE, ROOT)
    assert record.outside == (row,)
    assert [claim.path for claim in record.claims] == [f"{SITE}/ok.py"]


def test_other_spellings_of_a_digest() -> None:
    data = b"hello"
    digest = hashlib.sha256(data).digest()
    spellings = [record_digest(data), digest.hex(), base64.b64encode(digest).decode()]
    rows = [(f"{number}.py", f"SHA256={spelled}", "5") for number, spelled in enumerate(spellings)]
    claims = parse_record(written(rows), SITE, ROOT).claims
    assert {(claim.algorithm, claim.digest, claim.size) for claim in claims} == {("sha256", record_digest(data), 5)}


@pytest.mark.parametrize(
    ("data", "problem", "names"),
    [
        ("caf\xe9.py,,\n".encode("latin-1"), "RECORD is not UTF-8: read as Latin-1", ["caf\xe9.py"]),
        ("caf\xe9.py,,\n".encode("utf-16"), "RECORD is not UTF-8: read as UTF-16", ["caf\xe9.py"]),
        (b"a.py,,\n\0b.py,,\n", "RECORD has 1 row(s) that cannot be read", ["a.py"]),
        (
            b"a.py,sha256,\nb.py,=x,\nc.py,,many\n,,\n",
            "RECORD has 4 row(s) that cannot be read",
            ["a.py", "b.py", "c.py"],
        ),
        (b"a.py,," + b"9" * 5000 + b"\n", "RECORD has 1 row(s) that cannot be read", ["a.py"]),
        (b"a.py,,1\na.py,,2\n", "RECORD says two things of 1 file(s): the first was taken", ["a.py"]),
    ],
)
def test_rows_that_are_none(data: bytes, problem: str, names: list[str]) -> None:
    record = parse_record(data, SITE, ROOT)
    assert record.problems == (problem,)
    assert [claim.path.removeprefix(f"{SITE}/") for claim in record.claims] == names


def test_an_open_quote_that_swallows_the_rest_is_a_problem_of_its_own() -> None:
    record = parse_record(b"a.py,,\n" + b'"b.py,,\n' + b"c.py,,\n" * 50_000, SITE, ROOT)
    assert [claim.path for claim in record.claims] == [f"{SITE}/a.py"]
    assert "cannot be read to its end" in record.problems[0]


def test_a_byte_order_mark_is_no_part_of_the_first_path() -> None:
    assert parse_record(b"\xef\xbb\xbfa.py,,\n", SITE, ROOT).claims[0].path == f"{SITE}/a.py"


def test_a_hundred_thousand_rows() -> None:
    digest = record_digest(b"")
    data = "".join(f"pkg/{n % 300}/module_{n}.py,sha256={digest},{n}\n" for n in range(100_000)).encode()
    record = parse_record(data, SITE, ROOT)
    assert len(record.claims) == 100_000

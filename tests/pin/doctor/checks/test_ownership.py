"""Who owns a file that two distributions claim, in environments that the real pip made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.findings import SEVERITIES, Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import ownership
from harness.pin.doctor.installed.installation import Claim, Distribution, Installation, Layout, Stat
from tests.pin.doctor.examined import examined, listed, locked, mapped, unpack
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip, record_digest, site_packages

NCCL = "nvidia/nccl/lib/libnccl.so.2"
HEADER = "nvidia/nccl/include/nccl.h"


def found(case: Case) -> list[Finding]:
    return list(ownership.check(case))


def only(case: Case, kind: str) -> Finding:
    """The one finding of ``kind``; nothing else above note."""
    findings = found(case)
    assert {finding.kind for finding in findings if finding.severity != "note"} <= {kind}
    [finding] = [finding for finding in findings if finding.kind == kind]
    return finding


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "venv")


@pytest.fixture
def nccl(tmp_path: Path) -> tuple[Path, Path]:
    """The two builds of NCCL, with the paths that both of the real ones have."""
    common = {"nvidia/__init__.py": b"", "nvidia/nccl/__init__.py": b""}
    cu12 = {NCCL: b"nccl 2.27.5 of CUDA 12", HEADER: b"#define NCCL_VERSION 2.27.5", **common}
    cu13 = {NCCL: b"nccl 2.28.9 of CUDA 13 ...", HEADER: b"#define NCCL_VERSION 2.28.9 //", **common}
    return (
        make_wheel(tmp_path, "nvidia-nccl-cu12", "2.27.5", cu12),
        make_wheel(tmp_path, "nvidia-nccl-cu13", "2.28.9", cu13),
    )


def check_passes(python: Path) -> bool:
    return "No broken requirements found" in pip(python, "check").stdout


def test_the_nccl_story_is_told_at_every_stage_at_which_pip_check_passes(
    python: Path, nccl: tuple[Path, Path], tmp_path: Path
) -> None:
    cu12, cu13 = nccl
    torch = make_wheel(
        tmp_path, "torch", "2.9.0", {"torch/version.py": b"cuda = '12.8'\n"}, ["nvidia-nccl-cu12==2.27.5"]
    )
    lock = locked({"torch": "2.9.0", "nvidia-nccl-cu12": "2.27.5"}, torch, cu12)
    install(python, torch, cu12)
    assert found(examined(python, lock)) == []

    install(python, cu13)
    assert check_passes(python)
    finding = only(examined(python, lock), "owner.overwritten")
    assert (finding.severity, finding.subject) == ("broken", "nvidia-nccl-cu12")
    assert finding.summary == (
        "nvidia-nccl-cu12 lost libnccl.so.2 and 1 more file to nvidia-nccl-cu13: the files there now are 2.28.9's"
    )
    there = str((site_packages(python) / NCCL).relative_to(python.parents[1]))
    assert finding.evidence["count"] == 2
    assert finding.evidence["versions"] == {"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.28.9"}
    assert mapped(finding, "expected")[there] == record_digest(b"nccl 2.27.5 of CUDA 12")
    assert mapped(finding, "found")[there] == record_digest(b"nccl 2.28.9 of CUDA 13 ...")
    assert finding.fix == "harness doctor x --fix --remove nvidia-nccl-cu13"

    fast = only(examined(python, lock, bytes_read=False), "owner.overwritten")
    assert (fast.severity, fast.evidence["bytes_read"]) == ("broken", False)
    assert fast.summary == f"{finding.summary} by their size"
    assert set(mapped(fast, "found").values()) == {"not read"}

    pip(python, "uninstall", "-y", "nvidia-nccl-cu13")
    assert not (site_packages(python) / NCCL).exists()
    assert check_passes(python)
    assert "nvidia-nccl-cu12" in pip(python, "list").stdout
    finding = only(examined(python, lock), "owner.lost")
    assert (finding.severity, finding.subject, finding.evidence["count"]) == ("broken", "nvidia-nccl-cu12", 3)
    assert "very likely an uninstall of nvidia-nccl-cu13" in finding.summary
    assert finding.fix == "harness doctor x --fix"

    install(python, cu12)
    assert found(examined(python, lock)) == []


def test_without_a_lock_torchs_cuda_says_who_belongs_here(
    python: Path, nccl: tuple[Path, Path], tmp_path: Path
) -> None:
    version = b"__version__ = '2.9.0'\ncuda: Optional[str] = '12.8'\n"
    torch = make_wheel(tmp_path, "torch", "2.9.0", {"torch/version.py": version}, ["nvidia-nccl-cu12"])
    unpack(python, torch, nccl[0])
    unpack(python, nccl[1])
    finding = only(examined(python), "owner.overwritten")
    assert (finding.severity, finding.subject) == ("broken", "nvidia-nccl-cu12")
    uninstall, reinstall = finding.fix.split(" && ")
    assert uninstall.endswith(f"-m pip --python {python} uninstall -y nvidia-nccl-cu13")
    assert reinstall.endswith(f"{python} install --force-reinstall --no-deps nvidia-nccl-cu12==2.27.5")

    unpack(python, nccl[0])
    finding = only(examined(python), "owner.overwritten")
    assert (finding.severity, finding.subject) == ("dangerous", "nvidia-nccl-cu13")
    assert finding.fix.startswith(uninstall)


def test_the_same_bytes_are_one_note_for_all_who_share_them(python: Path, tmp_path: Path) -> None:
    files = {"nvidia/__init__.py": b"", "nvidia/common.py": b"x = 1\n"}
    names = [f"nvidia-{part}-cu12" for part in ("cublas", "cufft", "curand", "cusolver")]
    unpack(python, *(make_wheel(tmp_path, name, "12.8", {**files, f"nvidia/{name}.so": b"x"}) for name in names))
    finding = only(examined(python), "owner.shared")
    assert (finding.severity, finding.fix, finding.evidence["count"]) == ("note", "", 2)
    assert finding.evidence["claimants"] == tuple(names)
    assert finding.summary.startswith("nvidia-cublas-cu12 and 3 others share common.py and 1 more file")


def test_an_empty_init_that_an_uninstall_took_is_no_reason_to_stop_a_run(python: Path, tmp_path: Path) -> None:
    files = {"space/__init__.py": b""}
    install(
        python, *(make_wheel(tmp_path, name, "1", {**files, f"space/{name}.py": b""}) for name in ("aa", "bb", "cc"))
    )
    pip(python, "uninstall", "-y", "cc")
    finding = only(examined(python), "owner.lost")
    assert finding.severity == "drift"
    assert finding.summary.startswith("aa and bb lost space/__init__.py: an uninstalled distribution")


def test_before_an_uninstall_it_says_who_would_lose_what(python: Path, nccl: tuple[Path, Path], tmp_path: Path) -> None:
    needs = [
        make_wheel(tmp_path, "torch", "2.9.0", requires=["Nvidia.NCCL_cu13==2.28.9; python_version >= '3.8'"]),
        make_wheel(tmp_path, "older", "1", requires=["nvidia-nccl-cu13; python_version < '3'"]),
        make_wheel(tmp_path, "toolkit", "1", requires=["nvidia-nccl-cu13; extra == 'nccl'"]),
        make_wheel(tmp_path, "asker", "1", requires=["toolkit[nccl]"]),
    ]
    unpack(python, nccl[0], *needs)
    install(python, nccl[1])
    case = examined(python, locked({"nvidia-nccl-cu12": "2.27.5"}, nccl[0]))
    findings = ownership.if_uninstalled(case, "NVIDIA_nccl.cu13")
    lose, *required, goes = findings
    assert (lose.kind, lose.severity, lose.subject) == ("owner.would-lose", "broken", "nvidia-nccl-cu12")
    assert lose.summary == (
        "nvidia-nccl-cu12 would lose libnccl.so.2 and 3 more files: "
        "an uninstall of nvidia-nccl-cu13 deletes what both claim"
    )
    assert lose.fix == "harness doctor x --fix --remove nvidia-nccl-cu13"
    assert [finding.subject for finding in required] == ["toolkit", "torch"]
    assert (goes.severity, goes.evidence["not_its_own"]) == ("note", ())

    before = {path for path in site_packages(python).rglob("*") if path.is_file()}
    pip(python, "uninstall", "-y", "nvidia-nccl-cu13")  # what really goes is what was said
    gone = before - set(site_packages(python).rglob("*"))
    assert len(gone) == goes.evidence["files"]
    assert {f"lib/{path.relative_to(python.parents[1] / 'lib')}" for path in gone} >= set(listed(lose, "paths"))


def test_before_an_uninstall_it_says_which_commands_go_and_whose_bytes(python: Path, tmp_path: Path) -> None:
    tool = make_wheel(tmp_path, "tool", "1", {"tool.py": b"mine"}, scripts={"tool-run": b"#!python\nprint(1)\n"})
    install(python, tool)
    unpack(python, make_wheel(tmp_path, "thief", "1", {"tool.py": b"theirs"}))
    findings = ownership.if_uninstalled(examined(python), "tool")
    assert [(f.kind, f.subject) for f in findings] == [("owner.would-lose", "thief"), ("owner.would-go", "tool")]
    assert findings[1].evidence["commands"] == ("tool-run",)
    assert findings[1].summary.endswith("the command tool-run; 1 of them hold other bytes than its own")


def test_a_name_that_is_not_installed_names_what_comes_close(python: Path, tmp_path: Path) -> None:
    install(python, make_wheel(tmp_path, "nvidia-nccl-cu12", "1"))
    with pytest.raises(UsageError, match=r"nvidia-nccl-cu11 is not installed in .*did you mean nvidia-nccl-cu12\?"):
        ownership.if_uninstalled(examined(python), "nvidia_nccl_cu11")


def test_a_shared_script_that_was_only_told_of_another_python_is_no_loss(python: Path, tmp_path: Path) -> None:
    scripts = {"tool": b"#!python\nprint(1)\n"}
    install(python, *(make_wheel(tmp_path, name, "1", scripts=scripts) for name in ("aa", "bb")))
    tool = python.with_name("tool")
    tool.write_bytes(b"#!/usr/bin/env python3\nprint(1)\n")
    assert only(examined(python), "owner.shared").evidence["paths"] == ("bin/tool",)
    tool.write_bytes(b"#!/usr/bin/env python3\nprint(2)\n")
    assert only(examined(python), "file.changed").evidence["claimants"] == ("aa", "bb")


# --- installations that were never on a disk -------------------------------------------------------------

LAYOUT = Layout(Path("/v/bin/python"), "3.11.7", "/v", "/usr", ("/v/s",), "/v/s", "/v/s", "/usr/lib", ("/v/s",))


def imagined(claims: Mapping[str, Mapping[str, str]], disk: Mapping[str, str], bytes_read: bool = True) -> Case:
    """A case of ``claims`` ("name" or "name 2.0" -> file -> content) and of what is on the ``disk``."""
    distributions = tuple(
        Distribution(
            title.split()[0],
            title.split()[-1],
            f"/v/s/{title}.dist-info",
            "/v/s",
            tuple(Claim(f"/v/s/{f}", "sha256", record_digest(t.encode()), len(t)) for f, t in sorted(files.items())),
        )
        for title, files in sorted(claims.items())
    )
    stats = {f"/v/s/{file}": Stat(len(text), 0, 0, 0, 0o100644) for file, text in disk.items()}
    digests = {(f"/v/s/{file}", "sha256"): record_digest(text.encode()) for file, text in disk.items()}
    return Case(Installation(LAYOUT, distributions, stats), digests=digests if bytes_read else {})


def test_the_fast_form_does_not_guess_between_equal_sizes() -> None:
    claims, disk = {"aa": {"lib.so": "aa"}, "bb": {"lib.so": "bb"}}, {"lib.so": "bb"}
    finding = only(imagined(claims, disk, bytes_read=False), "owner.overwritten")
    assert finding.severity == "dangerous"
    assert finding.summary == "aa and bb claim lib.so with different bytes; whose are there now was not read"
    assert only(imagined(claims, disk), "owner.overwritten").summary.startswith("aa lost lib.so to bb")


def test_bytes_of_nobody_are_not_given_to_anybody() -> None:
    claims = {"aa": {"x.so": "1", "y.so": "1"}, "bb": {"x.so": "22", "y.so": "22"}}
    findings = found(imagined(claims, {"x.so": "ours", "y.so": "1"}))
    said = {finding.subject: (finding.evidence["paths"], finding.summary) for finding in findings}
    assert said == {
        "bb": (("s/y.so",), "bb lost y.so to aa: the file there now is aa's"),
        "aa": (("s/x.so",), "aa and bb both claim x.so, and the bytes there now are none of theirs"),
    }


def test_a_shared_file_that_somebody_changed_is_still_found() -> None:
    claims = {name: {"same.py": "1", "same.so": "1"} for name in ("aa", "bb", "cc")}
    assert only(imagined(claims, {"same.py": "2", "same.so": "1"}), "file.changed").severity == "dangerous"
    finding = only(imagined(claims, {"same.py": "1", "same.so": "2"}), "file.changed")
    assert (finding.severity, finding.evidence["paths"]) == ("broken", ("s/same.so",))
    assert finding.summary == "aa, bb and cc share same.so, and the bytes there now are none of theirs"


def test_texts_that_no_code_reads_are_only_noted() -> None:
    [finding] = found(imagined({"aa": {"LICENSE": "aa"}, "bb": {"LICENSE": "bb"}}, {"LICENSE": "bb"}))
    assert (finding.kind, finding.severity, finding.fix) == ("owner.overwritten", "note", "")


def test_a_missing_file_that_nobody_else_would_have_is_left_to_the_check_of_files() -> None:
    assert found(imagined({"alone": {"lib.so": "x"}, "other": {"other.so": "x"}}, {"other.so": "x"})) == []


def test_two_dist_infos_of_one_name_are_not_two_owners() -> None:
    """They are a finding of ``paths``: a name does not lose its files to itself, and a third loses to the newer."""
    claims = {"pkg 1": {"a.py": "one"}, "pkg 2": {"a.py": "two"}}
    assert found(imagined(claims, {"a.py": "two"})) == []
    finding = only(imagined({**claims, "third 3": {"a.py": "three"}}, {"a.py": "two"}), "owner.overwritten")
    assert finding.summary == "third lost a.py to pkg: the file there now is 2's"


CONTENTS = st.dictionaries(st.sampled_from(["a.so", "b.py", "c/d.so"]), st.sampled_from(["1", "2", "33"]))


@given(st.dictionaries(st.sampled_from(["aa", "bb", "cc"]), CONTENTS), CONTENTS)
def test_every_contested_file_is_in_exactly_the_findings_that_it_deserves(
    claims: dict[str, dict[str, str]], disk: dict[str, str]
) -> None:
    said: dict[str, set[tuple[str, str]]] = {}
    for finding in found(imagined(claims, disk)):
        assert finding.severity in SEVERITIES
        assert finding.evidence["count"] == len(listed(finding, "paths"))
        for path in listed(finding, "paths"):
            said.setdefault(path.removeprefix("s/"), set()).add((finding.kind, finding.subject))
    for file in {file for files in claims.values() for file in files}:
        owners = {name: files[file] for name, files in claims.items() if file in files}
        right = {name for name, text in owners.items() if disk.get(file) == text}
        if len(owners) < 2:
            assert file not in said
        elif file not in disk:
            assert {kind for kind, _ in said[file]} == {"owner.lost"}
        elif len(set(owners.values())) == 1:
            assert {kind for kind, _ in said[file]} == {"owner.shared" if right else "file.changed"}
        elif right:
            assert said[file] == {("owner.overwritten", loser) for loser in owners.keys() - right}
        else:
            assert {kind for kind, _ in said[file]} == {"owner.overwritten"}


def test_findings_stay_small_however_many_files_are_shared() -> None:
    files = {f"pkg/{n}.py": "x" for n in range(5_000)}
    case = imagined({"aa": files, "bb": files}, files)
    [finding] = found(case)
    assert finding.evidence["count"] == 5_000
    assert len(listed(finding, "paths")) == 20

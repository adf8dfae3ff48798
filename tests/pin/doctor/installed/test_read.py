"""Installations as read from their files: against importlib.metadata, and against what strangers may leave there."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness.pin.doctor.installed.installation import Distribution, Installation
from harness.pin.doctor.installed.layout import ask
from harness.pin.doctor.installed.read import read, root_of
from harness.pin.doctor.installed.tree import walk
from tests.pin.doctor.wheels import make_venv, make_wheel, pip, record_digest, site_packages


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment: each test may put what it likes into it, under a name of its own."""
    return make_venv(tmp_path_factory.mktemp("read") / "venv")


@pytest.fixture
def python(shared: Path) -> Iterator[Path]:
    """The same, emptied after each test."""
    yield shared
    (shared.parent.parent / "evil").unlink(missing_ok=True)
    for path in site_packages(shared).iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def installation(python: Path) -> Installation:
    return read(ask(python))


def only(python: Path) -> Distribution:
    (distribution,) = installation(python).distributions
    return distribution


def dist_info(
    python: Path, name: str = "demo-1.0", record: bytes | None = b"", url: Mapping[str, str] = {}, **files: str | bytes
) -> Path:
    """A dist-info made by hand; METADATA and WHEEL are there unless ``files`` says otherwise."""
    folder = site_packages(python) / f"{name}.dist-info"
    folder.mkdir()
    plain: dict[str, str | bytes] = {
        "METADATA": "Name: demo\nVersion: 1.0\n",
        "WHEEL": "Tag: py3-none-any\n",
        **url,
        **files,
    }
    for file, content in plain.items():
        if content:
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    if record is not None:
        (folder / "RECORD").write_bytes(record)
    return folder


def test_a_real_install_against_importlib_metadata(python: Path, tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path, "demo-pkg", "1.2+local", {"demo/__init__.py": b"x = 1\n", "demo/libx.so": b"\x7fELF"},
        requires=['torch >=2.9 ; python_version > "3"', "numpy"], scripts={"tool": b"#!python\nprint(1)\n"},
        tag="py3-none-manylinux_2_28_x86_64", build="7",
    )  # fmt: skip
    pip(python, "install", "--no-deps", "--no-index", wheel)
    found = installation(python)
    (distribution,) = found.distributions
    reference = importlib.metadata.PathDistribution(Path(distribution.info))
    assert (distribution.name, distribution.version) == ("demo-pkg", reference.version)
    assert list(distribution.requires) == reference.requires
    assert distribution.tags == ("py3-none-manylinux_2_28_x86_64",)
    assert (distribution.build, distribution.installer, distribution.editable) == ("7", "pip", False)
    assert str(distribution.direct_url["url"]).startswith("file:///")
    assert (distribution.outside, distribution.problems) == ((), ())
    expected = {
        (
            os.path.normpath(str(file.locate())),
            file.hash.mode if file.hash else "",
            file.hash.value if file.hash else "",
        )
        for file in reference.files or ()
    }
    assert {claim[:3] for claim in distribution.claims} == expected
    assert any(path.endswith("/__pycache__") or "/__pycache__/" in path for path, _, _ in expected)
    tool = f"{found.layout.prefix}/bin/tool"
    assert found.files[tool].size == Path(tool).stat().st_size
    assert set(found.files) == set(walk(found.layout).files) | {tool}


@pytest.mark.parametrize("spelling", ["Foo.Bar", "foo_bar", "foo-bar", "FOO__BAR"])
def test_four_spellings_are_one_name(python: Path, spelling: str) -> None:
    dist_info(python, f"{spelling}-1.0", METADATA=f"Name: {spelling}\nVersion: 1.0\n")
    dist_info(python, "other-1.0", METADATA="")  # without one the folder's name counts
    assert [d.name for d in installation(python).distributions] == ["foo-bar", "other"]


@pytest.mark.parametrize("folder", ["Foo.Bar-1.0", "foo_bar-1.0", "foo-bar-1.0", "FOO__BAR-1.0"])
def test_four_spellings_of_a_folder(python: Path, folder: str) -> None:
    dist_info(python, folder, METADATA="")
    assert (only(python).name, only(python).version) == ("foo-bar", "1.0")
    assert only(python).problems == ("METADATA is missing",)


def test_a_dist_info_with_nothing_in_it(python: Path) -> None:
    dist_info(python, record=None, METADATA="", WHEEL="")
    site = str(site_packages(python).resolve())
    missing = ("METADATA is missing", "RECORD is missing")
    assert only(python) == Distribution("demo", "1.0", f"{site}/demo-1.0.dist-info", site, problems=missing)


def test_an_installer_that_writes_no_record_is_not_blamed(python: Path) -> None:
    dist_info(python, record=None, INSTALLER="debian\n")
    assert (only(python).problems, only(python).installer) == ((), "debian")


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("Name: x;rm -rf ~\nVersion: 1.0\n", "METADATA has no valid Name"),
        ("Name: demo\nVersion: 1; rm -rf ~\n", "METADATA has no valid Version"),
        ("Version: 1.0\n", "METADATA has no valid Name"),
        (b"Name: demo\nVersion: 1.0\nSummary: caf\xe9\n", "METADATA is not UTF-8: read as Latin-1"),
        (b"\0\0\0", "METADATA has no valid Name"),
    ],
)
def test_metadata_that_is_none(python: Path, metadata: str | bytes, problem: str) -> None:
    """Name and version end up in commands that a person copies."""
    dist_info(python, METADATA=metadata)
    assert problem in only(python).problems
    assert (only(python).name, only(python).version) == ("demo", "1.0")


def test_a_folder_s_name_that_is_a_command(python: Path) -> None:
    dist_info(python, "$(reboot) ;x-1.0`id`", METADATA="")
    assert (only(python).name, only(python).version) == ("reboot-x", "")


def test_files_that_are_none(python: Path) -> None:
    """A pipe would keep us waiting, a link to itself cannot be opened, a folder is no file."""
    folder = dist_info(python, WHEEL="", METADATA="")
    os.mkfifo(folder / "METADATA")
    (folder / "WHEEL").symlink_to("WHEEL")
    (folder / "INSTALLER").mkdir()
    (folder / "direct_url.json").write_text("[" * 100_000)
    problems = " ".join(only(python).problems)
    assert "METADATA is not a file" in problems
    assert "WHEEL cannot be read: Too many levels of symbolic links" in problems
    assert "INSTALLER cannot be read: Is a directory" in problems
    assert "direct_url.json is not a JSON object" in problems


def test_an_editable_install_and_its_address(python: Path) -> None:
    address = {"url": "file:///home/me/project", "dir_info": {"editable": True}}
    dist_info(python, url={"direct_url.json": json.dumps(address)})
    assert only(python).editable
    assert only(python).direct_url == address


def test_where_a_wheel_came_from(python: Path) -> None:
    dist_info(python, url={"provenance_url.json": json.dumps({"url": "https://index.example/demo.whl"})})
    assert only(python).direct_url == {"url": "https://index.example/demo.whl"}


REQUIRES = (
    "numpy>=1\n\n[gpu]\ntorch\n\n[:python_version < '3']\nold\n\n[dev:sys_platform == 'linux']\nnox @ https://x/y\n"
)


def test_an_egg_info_against_importlib_metadata(python: Path) -> None:
    site = site_packages(python)
    folder = site / "Old_Pkg-2.0-py3.11.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Name: Old.Pkg\nVersion: 2.0\n\nText\n")
    (folder / "requires.txt").write_text(REQUIRES)
    (folder / "installed-files.txt").write_text(
        "../old/__init__.py\nPKG-INFO\n../../../../../etc/passwd\n/etc/passwd\n"
    )
    (site / "single-1.5-py3.11.egg-info").write_text("Name: single\nVersion: 1.5\n")  # as Debian does
    old, single = installation(python).distributions
    reference = importlib.metadata.PathDistribution(folder)
    assert (old.name, old.version) == ("old-pkg", "2.0")
    assert [Requirement(line) for line in old.requires] == [Requirement(line) for line in reference.requires or ()]
    assert [claim.path.removeprefix(old.site) for claim in old.claims] == [
        "/old/__init__.py",
        f"/{folder.name}/PKG-INFO",
    ]
    assert len(old.outside) == 2
    assert (single.name, single.version, single.claims, single.problems) == ("single", "1.5", (), ())


def test_what_setup_py_develop_leaves(python: Path, tmp_path: Path) -> None:
    (tmp_path / "my_tool.egg-info").mkdir()
    (tmp_path / "my_tool.egg-info" / "PKG-INFO").write_text("Name: my-tool\nVersion: 0.1\n")
    (site_packages(python) / "my-tool.egg-link").write_text(f"{tmp_path}\n.\n")
    (site_packages(python) / "broken.egg-link").write_bytes(b"\0")
    broken, tool = installation(python).distributions
    assert (tool.name, tool.version, tool.editable) == ("my-tool", "0.1", True)
    assert broken.problems == ("PKG-INFO is missing",)


def test_of_two_with_one_name_the_first_is_the_one_that_python_finds(python: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        dist_info(python, f"demo-{version}", METADATA=f"Name: demo\nVersion: {version}\n")
    question = "import importlib.metadata as m; print(m.version('demo'))"
    answer = subprocess.run([python, "-I", "-c", question], capture_output=True, text=True, check=True).stdout.strip()
    found = installation(python)
    assert len(found.distributions) == 3
    assert found.by_name["demo"].version == answer


def test_what_a_broken_uninstall_left_is_no_distribution(python: Path) -> None:
    dist_info(python, "~emo-1.0")
    assert installation(python).distributions == ()


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every path that is asked about or opened from here on."""
    seen: list[str] = []
    for name in ("stat", "lstat", "open", "readlink", "scandir", "listdir"):
        real = getattr(os, name)

        def spy(path: object, *args: object, _real: object = real, **kwargs: object) -> object:
            seen.append(str(path))
            return _real(path, *args, **kwargs)  # type: ignore[operator]

        monkeypatch.setattr(os, name, spy)
    return seen


def test_paths_that_leave_the_environment_are_never_looked_at(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("x")
    prefix = python.parent.parent
    (prefix / "evil").symlink_to(secret)
    (site_packages(python) / "evil").symlink_to(secret)
    rows = [f"../../../../{'../' * 20}etc/passwd", str(secret / "key"), "../../../evil/key", "evil/key", "evil/deep/er"]
    inside = b"ring/x.py,,\n"
    dist_info(python, record="".join(f"{row},sha256={record_digest(b'x')},1\n" for row in rows).encode() + inside)
    layout = ask(python)
    (site_packages(python) / "ring").symlink_to("ring/ring")
    seen = looked_at(monkeypatch)
    found = read(layout)
    monkeypatch.undo()
    assert found.distributions[0].outside == tuple(rows)
    assert [claim.path[-9:] for claim in found.distributions[0].claims] == ["ring/x.py"]
    assert any("demo-1.0.dist-info" in path for path in seen)  # the spy sees
    assert [path for path in seen if "secret" in path or "passwd" in path] == []


def test_a_file_claimed_by_way_of_a_link_inside_is_known_by_its_real_path(python: Path) -> None:
    site = site_packages(python)
    (site / "real").mkdir()
    (site / "real" / "a.py").write_text("")
    (site / "alias").symlink_to("real")
    dist_info(python, record=b"alias/a.py,,\nreal/a.py,,\nalias/gone.py,sha256=x,\n")
    claims = [claim.path.removeprefix(f"{site.resolve()}/") for claim in only(python).claims]
    assert claims == ["real/a.py", "real/gone.py"]


def test_a_hundred_thousand_rows_of_files_that_are_not_there(python: Path) -> None:
    deep = "d/" * 900
    rows = [f"pkg/{n % 5000}/{n}.py,sha256={record_digest(b'')},0\n" for n in range(100_000)] + [f"{deep}x,,\n"]
    dist_info(python, record="".join(rows).encode())
    found = read(ask(python))
    assert len(found.distributions[0].claims) == 100_001
    assert found.unreadable == {}


def test_the_roots_of_sites() -> None:
    layout = ask(Path("/usr/bin/python3")) if Path("/usr/bin/python3").exists() else None
    if layout is not None and layout.prefix == "/usr":
        assert root_of("/usr/lib/python3/dist-packages", layout) == "/usr"
        assert root_of("/home/me/.local/lib/python3.11/site-packages", layout) == "/home/me/.local"
        assert root_of("/lib/python3.11/site-packages", layout) == "/lib/python3.11/site-packages"
        assert root_of("/srv/shared", layout) == "/srv/shared"

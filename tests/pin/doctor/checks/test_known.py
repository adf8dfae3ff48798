"""The table of known bad states: each rule speaks of its state, and is silent about the one beside it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.findings import Finding
from harness.pin.doctor.case import Case
from harness.pin.doctor.checks import known
from harness.pin.doctor.checks.known_rules import When, load
from harness.records import Lock, Pin
from tests.pin.doctor.examined import examined, locked
from tests.pin.doctor.placed import FRAME, FRAME_TEXT, TRACE, TRACE_TEXT, place, reading
from tests.pin.doctor.wheels import install, make_venv, make_wheel, pip

RULES = {rule.id: rule for rule in known.rules()}


@dataclass(frozen=True)
class State:
    """An environment to build: distributions by name, and what stands around them."""

    installed: Mapping[str, str]
    requires: tuple[str, ...] = ()  # of torch
    files: Mapping[str, bytes] = field(default_factory=dict)  # under site-packages
    elsewhere: tuple[str, ...] = ()  # distributions that are in a second site folder
    locked: tuple[str, ...] = ()  # names in the lock; () for no lock
    variables: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()  # in a folder of LD_LIBRARY_PATH


def build(state: State, folder: Path) -> Case:
    """``state`` on disk below ``folder``, and the case of it."""
    site, second = folder / "site-packages", folder / "lib64"
    site.mkdir(parents=True)
    for name, version in state.installed.items():
        where = second if name in state.elsewhere else site
        place(where, name, version, requires=state.requires if name == "torch" else ())
    for path, content in state.files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
    variables = dict(state.variables)
    if state.libraries:
        variables["LD_LIBRARY_PATH"] = str(folder / "cuda")
        (folder / "cuda").mkdir()
    for library in state.libraries:
        (folder / "cuda" / library).write_bytes(b"\x7fELF")
    pins = {name: Pin(name, state.installed.get(name, "1.0"), ("sha256:" + "0" * 64,)) for name in state.locked}
    lock = Lock("x", ("3.11",), "0" * 64, tuple(pins.values()), "envs/x.txt") if pins else None
    installation = reading(*((site, second) if state.elsewhere else (site,)))
    return Case(installation, lock, pins, command="harness doctor x", variables=variables)


def spoken(state: State, folder: Path) -> dict[str, Finding]:
    """What the table says of ``state``, by rule."""
    return {finding.kind.removeprefix("known."): finding for finding in known.check(build(state, folder))}


ALWAYS_NO = TRACE_TEXT.replace(
    b"return _is_fx_tracing_flag and not torch.compiler.is_compiling()",
    b'"""Patched: threads."""\n    # see the wiki\n    return False',
)
UNASKED = FRAME_TEXT.replace(b"if is_fx_symbolic_tracing() and", b"# if is_fx_symbolic_tracing() and\n            if")
SHIM = b"import torch.fx._symbolic_trace as t\nt.is_fx_symbolic_tracing = lambda: False\n"

CU12, CU13, CUDNN = "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"

# By rule: the state that it is about, and the nearest one that is as it should be.
STATES: dict[str, tuple[State, State]] = {
    "nccl-two-owners": (
        State({CU12: "2.27.5", CU13: "2.28.9", "torch": "2.10.0+cu128"}),
        State({CU12: "2.27.5", "torch": "2.10.0+cu128"}),
    ),
    "nccl-cu11-left-over": (
        State({"nvidia-nccl-cu11": "2.14.3", CU12: "2.27.3", "torch": "2.8.0+cu128"}),
        State({"nvidia-nccl-cu11": "2.21.5", "torch": "2.7.1+cu118"}),
    ),
    "nccl-below-deepep": (
        State({CU13: "2.28.9", "deep-ep": "2.0.0", "torch": "2.11.0"}),
        State({CU13: "2.30.4", "deep-ep": "2.0.0", "torch": "2.11.0"}),
    ),
    "nccl-not-loaded": (
        State({CU13: "2.30.4", "torch": "2.11.0a0+cu130"}),
        State({CU13: "2.30.4", "torch": "2.11.0a0+cu130"}, requires=(f"{CU13}>=2.28; platform_system == 'Linux'",)),
    ),
    "vllm-cu13-under-cu12": (
        State({"vllm": "0.22.0", "torch": "2.11.0+cu129"}),
        State({"vllm": "0.22.0+cu129", "torch": "2.11.0+cu129"}),
    ),
    "vllm-cu12-under-cu13": (
        State({"vllm": "0.13.0", "torch": "2.9.0+cu130"}),
        State({"vllm": "0.13.0", "torch": "2.9.0+cu128"}),
    ),
    "cupy-two-owners": (
        State({"cupy-cuda12x": "14.0.0", "cupy-cuda13x": "14.0.1"}),
        State({"cupy-cuda13x": "14.0.1"}),
    ),
    "tensorrt-llm-cu12-torch": (
        State({"tensorrt-llm": "1.2.0rc2", "torch": "2.9.0+cu128"}),
        State({"tensorrt-llm": "1.2.0rc2", "torch": "2.9.0+cu130"}),
    ),
    "torch-apart-from-cudnn": (
        State({"torch": "2.9.0+cu128", "nvidia-cudnn-cu12": "9.10.2.21"}, elsewhere=("torch",)),
        State({"torch": "2.9.0+cu128", "nvidia-cudnn-cu12": "9.10.2.21", "numpy": "2.4"}, elsewhere=("numpy",)),
    ),
    "cudnn-9-20-incomplete": (
        State({CUDNN: "9.20.0.48"}, libraries=("libcudnn_engines_tensor_ir.so.9.23.2",)),
        State({CUDNN: "9.21.0.82"}, libraries=("libcudnn_engines_tensor_ir.so.9.23.2",)),
    ),
    "nvjitlink-from-path": (
        State(
            {"nvidia-cusparse-cu12": "12.3.1.170", "torch": "2.5.1+cu124"},
            libraries=("libnvJitLink.so.12",),
        ),
        State({"nvidia-cusparse-cu12": "12.3.1.170", "torch": "2.5.1+cu124"}, libraries=("libcudart.so.11.0",)),
    ),
    "flashinfer-cubin-behind": (
        State({"flashinfer-python": "0.6.14", "flashinfer-cubin": "0.6.13"}),
        State({"flashinfer-python": "0.6.13", "flashinfer-cubin": "0.6.13"}),
    ),
    "flashinfer-cudnn-cu13": (
        State({"flashinfer-python": "0.6.13", CUDNN: "9.20.0.48", "torch": "2.11.0+cu128"}),
        State({"flashinfer-python": "0.6.13", CUDNN: "9.19.0.56", "torch": "2.11.0+cu130"}),
    ),
    "sglang-unlocked": (
        State({"sglang": "0.5.20", "torch": "2.10.0+cu128"}, locked=("torch",)),
        State({"sglang": "0.5.20", "torch": "2.10.0+cu128"}, locked=("torch", "sglang")),
    ),
    "sgl-kernel-unlocked": (
        State({"sglang-kernel": "0.4.10", "torch": "2.10.0+cu128"}, locked=("torch",)),
        State({"sglang-kernel": "0.4.10", "torch": "2.10.0+cu128"}),
    ),
    "vllm-unlocked": (
        State({"vllm": "0.26.0", "torch": "2.11.0"}, locked=("torch",)),
        State({"vllm": "0.26.0", "torch": "2.11.0"}, locked=("torch", "vllm")),
    ),
    "flashinfer-unlocked": (
        State({"flashinfer-python": "0.6.13", "torch": "2.11.0"}, locked=("torch",)),
        State({"flashinfer-python": "0.6.13", "torch": "2.11.0"}, locked=("torch", "flashinfer-python")),
    ),
    "conv3d-without-cudnn": (State({"torch": "2.9.0+cu130"}), State({"torch": "2.9.0+cpu"})),
    "conv3d-old-cudnn": (
        State({"torch": "2.9.1+cu128", "nvidia-cudnn-cu12": "9.10.2.21"}),
        State({"torch": "2.9.1+cu128", "nvidia-cudnn-cu12": "9.15.1.9"}),
    ),
    "tracing-check-edited": (
        State({"torch": "2.11.0+cu128"}, files={TRACE: ALWAYS_NO}),
        State({"torch": "2.11.0+cu128"}, files={TRACE: TRACE_TEXT + b"\n\ndef other():\n    return False\n"}),
    ),
    "tracing-check-removed": (
        State({"torch": "2.11.0+cu128"}, files={FRAME: UNASKED}),
        State({"torch": "2.11.0+cu128"}),
    ),
    "tracing-check-shimmed": (
        State({"torch": "2.11.0+cu128"}, files={"sitecustomize.py": SHIM}),
        State({"torch": "2.11.0+cu128"}, files={"sitecustomize.py": b"# t.is_fx_symbolic_tracing = no longer\n"}),
    ),
    "torch-2-11-threads": (State({"torch": "2.11.0+cu128"}), State({"torch": "2.14.1"})),
    "alloc-conf-ignored": (
        State({"torch": "2.9.1+cu128"}, variables={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        State(
            {"torch": "2.9.1+cu128"},
            variables=dict.fromkeys(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True"),
        ),
    ),
}


def test_every_rule_has_its_states_and_every_state_its_rule() -> None:
    assert set(STATES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_speaks_of_its_state_and_not_of_the_one_beside_it(rule: str, tmp_path: Path) -> None:
    bad, good = STATES[rule]
    findings = spoken(bad, tmp_path / "bad")
    assert rule in findings, f"said only {sorted(findings)}"
    assert rule not in spoken(good, tmp_path / "good")
    finding = findings[rule]
    assert finding.subject == "python" or finding.subject in bad.installed
    assert (finding.fix == "") == (finding.severity == "note")
    assert not re.search(r"[{}]", finding.summary + finding.fix), "a placeholder was left"
    assert finding.summary.endswith(".")
    assert "\n" not in finding.summary
    named = [name for name in bad.installed if name in finding.summary] + re.findall(
        r"LD_LIBRARY_PATH", finding.summary
    )
    assert named, "the sentence names nothing that is there"
    assert finding.evidence["report"] == RULES[rule].report
    assert Finding.from_json(json.loads(json.dumps(asdict(finding)))) == finding


@pytest.mark.parametrize("rule", RULES)
def test_every_installed_condition_is_needed(rule: str, tmp_path: Path) -> None:
    """Without any one of the distributions that the rule names, there is nothing to say."""
    bad, _ = STATES[rule]
    for number, pattern in enumerate(RULES[rule].when.installed):
        rest = {name: version for name, version in bad.installed.items() if not fnmatchcase(name, pattern)}
        assert rest != bad.installed
        assert rule not in spoken(replace(bad, installed=rest), tmp_path / str(number)), pattern


def test_every_report_is_a_public_thread() -> None:
    reports = [url for rule in RULES.values() for url in (rule.report, *rule.see)]
    assert all(re.fullmatch(r"https://github\.com/[^/]+/[^/]+/(issues|pull)/[0-9]+", url) for url in reports)
    assert all(rule.report not in rule.see and len(set(rule.see)) == len(rule.see) for rule in RULES.values())


def test_every_condition_that_a_rule_can_have_is_had_by_one() -> None:
    used = {f.name for rule in RULES.values() for f in fields(When) if getattr(rule.when, f.name)}
    assert used == {f.name for f in fields(When)}


def test_a_second_nccl_beside_the_one_that_torch_asks_for_is_a_matter_of_two_owners(tmp_path: Path) -> None:
    """Its uninstall would take torch's own: the rule on an NCCL that torch does not load must be silent."""
    site = tmp_path / "site-packages"
    place(site, "torch", "2.11.0+cu130", requires=["nvidia-nccl-cu13==2.28.9"])
    place(site, "nvidia-nccl-cu13", "2.28.9")
    place(site, CU12, "2.27.5")
    assert [f.kind for f in known.check(Case(reading(site), command="x")) if "nccl" in f.kind] == [
        "known.nccl-two-owners"
    ]


def test_the_pair_that_pip_check_passes_is_known(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    path = "nvidia/nccl/lib/libnccl.so.2"
    for name, version in ((CU12, "2.27.5"), (CU13, "2.28.9")):
        install(python, make_wheel(tmp_path, name, version, {path: version.encode()}))
    assert "No broken requirements found" in pip(python, "check").stdout
    case = examined(python, bytes_read=False)
    [finding] = known.check(case)
    assert finding.kind == "known.nccl-two-owners"
    assert finding.fix == case.uninstall(CU12)
    locked_to_12 = examined(python, locked({CU12: "2.27.5"}), bytes_read=False)
    [finding] = known.check(locked_to_12)
    assert finding.fix == f"harness doctor x --fix --remove {CU13}"


def test_a_fresh_environment_has_nothing_known(tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    assert list(known.check(examined(python, bytes_read=False))) == []
    install(python, make_wheel(tmp_path, "numpy", "2.4.6", {"numpy/__init__.py": b""}))
    assert list(known.check(examined(python, locked({"numpy": "2.4.6"}), bytes_read=False))) == []


def test_a_rule_for_a_torch_without_cuda_is_silent(tmp_path: Path) -> None:
    """Everything that rules ask for, beside a CPU build: what is about torch's CUDA must not speak."""
    state = State(
        {"torch": "2.9.1+cpu", "vllm": "0.22.0", CUDNN: "9.10", "flashinfer-python": "0.6.13", CU13: "2.30.4"}
    )
    about_cuda = {rule.id for rule in RULES.values() if rule.when.torch_cuda or rule.when.unneeded_by_torch}
    assert not about_cuda & set(spoken(state, tmp_path))


def test_a_library_of_the_environment_itself_is_not_another_one(tmp_path: Path) -> None:
    bad, _ = STATES["nvjitlink-from-path"]
    library = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    case = build(replace(bad, libraries=(), files={library: b"\x7fELF"}), tmp_path)
    own = str(tmp_path / "site-packages/nvidia/nvjitlink/lib")
    said = {finding.kind for finding in known.check(replace(case, variables={"LD_LIBRARY_PATH": own}))}
    assert "known.nvjitlink-from-path" not in said


def test_the_loader_reads_a_relative_folder_from_the_current_one(tmp_path: Path) -> None:
    bad, _ = STATES["nvjitlink-from-path"]
    case = build(bad, tmp_path)
    here = replace(case, variables={"LD_LIBRARY_PATH": "cuda"}, cwd=str(tmp_path))
    elsewhere = replace(here, cwd=str(tmp_path / "site-packages"))
    assert "known.nvjitlink-from-path" in {finding.kind for finding in known.check(here)}
    assert "known.nvjitlink-from-path" not in {finding.kind for finding in known.check(elsewhere)}


def test_a_fix_that_names_a_file_removes_exactly_it(tmp_path: Path) -> None:
    bad, _ = STATES["tracing-check-shimmed"]
    state = replace(bad, files={"a b'$(touch x).pth": b"import t; t.x.is_fx_symbolic_tracing = lambda: False\n"})
    finding = spoken(state, tmp_path)["tracing-check-shimmed"]
    [shim] = (tmp_path / "site-packages").glob("*.pth")
    subprocess.run(finding.fix, shell=True, check=True, cwd=tmp_path)
    assert not shim.exists()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("version", ["", "not a version", "2.9.0.post1+cu130"])
def test_a_version_that_cannot_be_read_is_in_no_range(version: str, tmp_path: Path) -> None:
    case = build(State({"torch": "2.9.0+cu130"}), tmp_path)
    [torch] = case.installation.distributions
    odd = replace(case, installation=replace(case.installation, distributions=(replace(torch, version=version),)))
    assert "known.conv3d-without-cudnn" not in {finding.kind for finding in known.check(odd)}


def test_torch_files_of_noise_give_no_traceback(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40
    state = State({"torch": "2.11.0"}, files=dict.fromkeys((TRACE, FRAME, "torch/version.py", "x.pth"), noise))
    assert set(spoken(state, tmp_path)) == {"torch-2-11-threads", "tracing-check-removed"}


GOOD = """
[[rule]]
id = "r"
title = "t"
severity = "drift"
report = "https://github.com/a/b/issues/1"
subject = "torch"
sentence = "{subject} {version} is wrong."
fix = { uninstall = ["torch"] }
when.installed = { torch = ">=2" }
"""


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('title = "t"', "", "title"),
        ('title = "t"', "title = 3", "title"),
        ('title = "t"', 'title = "t"\ntitel = "t"', "titel"),
        ('"drift"', '"bad"', "severity"),
        ('"drift"', '"note"', "fix"),
        ("issues/1", "issues", "report"),
        ("https://github.com", "https://example.org", "report"),
        ('subject = "torch"', 'subject = "numpy"', "subject"),
        ("{version}", "{cuda}", "sentence"),
        ("{version}", "{version", "sentence"),
        ('["torch"] }\n', '["{folder}"] }\n', "fix"),
        ("uninstall", "delete", "fix"),
        ('{ uninstall = ["torch"] }', "{ uninstall = [] }", "fix.uninstall"),
        ('">=2"', '">=two"', "when.installed.torch"),
        ('">=2"', "2", "when.installed.torch"),
        ('when.installed = { torch = ">=2" }', "when.installed = {}", "when.installed"),
        ('when.installed = { torch = ">=2" }', "", "when"),
        ("when.installed", "when.instaled", "when.instaled"),
        ('">=2" }', '">=2" }\nwhen.text = { "a" = "(" }', "when.text.a"),
        ('">=2" }', '">=2" }\nwhen.torch_cuda = "new"', "when.torch_cuda"),
        ('">=2" }', '">=2" }\nwhen.plain = "torch"', "when.plain"),
        ('">=2" }', '">=2" }' + GOOD, "id"),
    ],
)
def test_a_rule_that_cannot_be_right_is_refused_by_name_and_key(old: str, new: str, key: str) -> None:
    assert len(load(GOOD)) == 1
    wrong = GOOD.replace(old, new, 1)
    assert wrong != GOOD
    with pytest.raises(HarnessError, match=rf"^known\.toml, rule r, key {re.escape(key)}: [^\n]+$"):
        load(wrong)


def test_a_table_that_is_no_toml_is_one_line() -> None:
    with pytest.raises(HarnessError, match=r"^known\.toml is not TOML: [^\n]+$"):
        load("[[rule]\n")


def test_a_fix_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """Each command splits as a shell would split it, and starts with something that can be run."""
    for number, (rule, (bad, _)) in enumerate(STATES.items()):
        fix = spoken(bad, tmp_path / f"with space {number}")[rule].fix
        if fix:
            words = shlex.split(fix)
            assert words[0].endswith("bin/python") or words[0] in ("harness", "unset", "export", "rm"), fix

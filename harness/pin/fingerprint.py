"""Where a run ran, as flat facts. Nothing of the environment under test is imported: its files are read. For example:

environment.package.torch   environment.python   environment.torch.build   environment.cuda
environment.lock            environment.variable.NCCL_DEBUG                 environment.gpu.0.name
code.commit                 code.patch.sha256     state.load.1m             state.cache.bytes
workload.train.batch        execution.compile     context.host
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from harness.pin import caches
from harness.pin.interpreter import ask
from harness.pin.locks import normalise
from harness.pin.secrets import name_is_secret, redacted, value_is_secret
from harness.records import BuiltEnvironment, RunSpec, Value, digest

_RECORDED = re.compile(
    r"(CUDA|CUBLAS|CUDNN|NCCL|NVIDIA|NVTE|GLOO|UCX|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|XLA|OMP|GOMP|KMP|MKL|OPENBLAS"
    r"|NUMEXPR|MALLOC|TRANSFORMERS|TOKENIZERS|FLASH|FLASHINFER|VLLM|SGLANG)_\w+"
    r"|TORCHDYNAMO\w*|HF_(HOME|HUB_OFFLINE|DATASETS_OFFLINE)|LD_(LIBRARY_PATH|PRELOAD)"
    r"|PYTHON(PATH|HASHSEED|OPTIMIZE|MALLOC|DEVMODE)|WORLD_SIZE|LOCAL_WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK"
)


def cache_identity(environment: BuiltEnvironment, facts: Mapping[str, Value]) -> str:
    """What tells apart environments that must not share compiled code: what is pinned or installed, Python, image."""
    if environment.lock is not None:
        name, pinned = environment.name, environment.lock.digest
    else:
        name, pinned = "unlocked", digest({k: v for k, v in facts.items() if k.startswith("environment.package.")})
    identity = f"{name}-{pinned[:12]}-py{facts['environment.python']}"
    if not any(fact.startswith("environment.image.") for fact in facts):
        return identity
    # What an image's compiler made needs the image's C library, which need not be this machine's.
    system = digest([facts.get("environment.os"), facts.get("environment.libc")])
    return f"{identity}-image-{system[:8]}"


def cache_root(
    environment: BuiltEnvironment, facts: Mapping[str, Value], under: Path, cold: bool = False
) -> caches.CacheRoot:
    """The compile-cache root of this environment on this device; the machine's facts are among ``facts``."""
    device = facts.get("environment.gpu.0.name") or facts.get("environment.cpu.model") or "cpu"
    cuda = facts.get("environment.cuda")
    return caches.choose(under, cache_identity(environment, facts), str(device), str(cuda) if cuda else None, cold)


def spec_facts(spec: RunSpec) -> dict[str, Value]:
    """The settings, each under its kind. A command that is not ours is its own workload: no more is known of it."""
    facts: dict[str, Value] = {f"{spec.kinds.get(key, 'workload')}.{key}": value for key, value in spec.config.items()}
    if spec.devices:
        facts["execution.devices"] = ",".join(spec.devices)
    if spec.recipe:
        facts["context.recipe"] = spec.recipe
    else:
        facts["workload.command"] = " ".join(redacted(spec.argv))
    return facts


def environment_facts(environment: BuiltEnvironment) -> dict[str, Value]:
    """Python, every installed distribution, the lock, and torch's build, from the environment's files."""
    python = ask(environment.python)
    facts: dict[str, Value] = {
        "environment.python": python.version,
        "environment.python.implementation": python.implementation,
        "environment.python.compiler": python.compiler,
        "context.python": str(environment.python),
        **{f"environment.package.{name}": version for name, version in packages(environment.site_packages).items()},
        **torch_facts(environment.site_packages),
    }
    if environment.name:
        facts["context.environment"] = environment.name
    if environment.lock is not None:
        facts["environment.lock"] = environment.lock.digest
    return facts


def packages(site_packages: Path) -> dict[str, str]:
    """``{"torch": "2.13.0+cpu", ...}`` of the dist-info folders in ``site_packages``."""
    found = {}
    for distribution in distributions(path=[str(site_packages)]):
        metadata = distribution.metadata  # each access parses the file again
        # None for a broken dist-info, or KeyError where the importlib_metadata package has put itself in between
        name, version = (metadata[key] if key in metadata else None for key in ("Name", "Version"))  # noqa: SIM401
        if name and version:  # a folder that a broken uninstall left has neither
            found[normalise(name)] = version
    return found


def torch_facts(site_packages: Path) -> dict[str, Value]:
    """torch's build, its CUDA and its commit, from the text of ``torch/version.py``. Empty without torch."""
    path = site_packages / "torch" / "version.py"
    if not path.is_file():
        return {}
    assigned = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*'([^']*)'", path.read_text("utf-8"), re.MULTILINE))
    names = {"__version__": "torch.build", "cuda": "cuda", "hip": "torch.hip", "git_version": "torch.commit"}
    return {f"environment.{fact}": assigned[name] for name, fact in names.items() if name in assigned}


def variable_facts(variables: Mapping[str, str]) -> dict[str, Value]:
    """The variables that can change speed or results, and no secret. The caches' places are the harness's own."""
    return {
        f"environment.variable.{name}": value
        for name, value in sorted(variables.items())
        if _RECORDED.fullmatch(name)
        and name not in caches.VARIABLES
        and not name_is_secret(name)
        and not value_is_secret(value)
    }

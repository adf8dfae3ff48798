"""No secret is written down, and ordinary settings are."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.pin.fingerprint import variable_facts
from harness.pin.secrets import HIDDEN, name_is_secret, redacted, value_is_secret

letters = string.ascii_letters + string.digits
body = st.text(letters, min_size=20, max_size=40)
known = st.one_of(
    body.map("hf_{}".format),
    body.map("sk-{}".format),
    body.map("sk-proj-{}".format),
    body.map("ghp_{}".format),
    body.map("glpat-{}".format),
    body.map("Bearer {}".format),
    st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16).map("AKIA{}".format),
    st.tuples(st.text(letters, min_size=1), st.text(letters, min_size=1)).map(
        lambda p: f"https://{p[0]}:{p[1]}@host/x"
    ),
)
prefixes = st.sampled_from(["CUDA_", "NCCL_", "TORCH_", "OMP_", "PYTORCH_", "TRITON_", "VLLM_", "HF_"])
secret_words = st.sampled_from(["TOKEN", "API_KEY", "PASSWORD", "SECRET", "CREDENTIALS", "AUTH", "PRIVATE_KEY"])


@given(prefixes, secret_words, st.sampled_from(["", "_FILE", "S", "_2"]), st.text(min_size=1))
def test_no_variable_with_a_secret_name_is_recorded(prefix: str, word: str, suffix: str, value: str) -> None:
    assert variable_facts({prefix + word + suffix: value}) == {}


@given(
    prefixes,
    known,
    st.sampled_from(["", "a,", "x=", "first second ", "/path:"]),
    st.sampled_from(["", ",z", " --more"]),
)
def test_no_variable_with_a_secret_value_is_recorded(prefix: str, secret: str, before: str, after: str) -> None:
    assert variable_facts({prefix + "OPTIONS": before + secret + after}) == {}


@given(
    st.text(letters, min_size=32, max_size=64).filter(lambda t: any(map(str.isdigit, t)) and any(map(str.isalpha, t)))
)
def test_what_is_long_and_opaque_is_taken_for_a_secret(value: str) -> None:
    assert variable_facts({"NCCL_SOMETHING": value}) == {}


@given(st.dictionaries(st.text(string.ascii_uppercase + "_", min_size=1, max_size=12), st.text(min_size=1), max_size=8))
def test_only_listed_variables_are_recorded(variables: dict[str, str]) -> None:
    listed = ("CUDA", "NCCL", "OMP", "HF_", "LD_", "MKL", "RANK", "PYTHON", "TORCH", "WORLD_SIZE", "XLA", "KMP", "UCX")
    for fact in variable_facts(variables):
        assert fact.removeprefix("environment.variable.").startswith(listed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "5,6,7"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1"),
        ("OMP_NUM_THREADS", "1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("TORCH_LOGS", "+dynamo,recompiles"),
        ("TORCHDYNAMO_VERBOSE", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda-12.8/lib64:/opt/venv/lib/python3.12/site-packages/nvidia/cudnn/lib"),
        ("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
        ("PYTHONHASHSEED", "0"),
        ("LOCAL_RANK", "3"),
    ],
)
def test_the_variables_that_matter_are_recorded(name: str, value: str) -> None:
    assert variable_facts({name: value}) == {f"environment.variable.{name}": value}


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["train", "--hf-token", "abc", "--steps", "5"], ["train", "--hf-token", HIDDEN, "--steps", "5"]),
        (["train", "--api_key=abc"], ["train", f"--api_key={HIDDEN}"]),
        (["train", "hf_abcdefghijklmnopqrst"], ["train", HIDDEN]),
        (["env", "WANDB_API_KEY=abc", "train"], ["env", f"WANDB_API_KEY={HIDDEN}", "train"]),
        (["curl", "https://me:pw@host/data"], ["curl", HIDDEN]),
        (["train", "--max-tokens", "512", "--tokenizer=qwen", "--num-key-value-heads", "8"], None),
        (["train", "--data", "/a/very/long/path/to/some/0123456789/data/set/of/many/files.jsonl"], None),
        (["python", "-m", "train", "--lr=1e-4", "--tokens-per-step", "4096"], None),
    ],
)
def test_arguments_are_shown_but_for_secrets(argv: list[str], shown: list[str] | None) -> None:
    assert list(redacted(argv)) == (argv if shown is None else shown)


@given(st.lists(st.one_of(known, st.sampled_from(["--a", "b", "--c=d"]))))
def test_no_known_secret_survives_among_arguments(argv: list[str]) -> None:
    assert not any(value_is_secret(argument) for argument in redacted(argv))


def test_a_name_is_secret_by_its_parts() -> None:
    assert name_is_secret("wandb_api_key")
    assert name_is_secret("GITHUB_TOKEN")
    assert not name_is_secret("TOKENIZERS_PARALLELISM")

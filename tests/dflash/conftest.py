"""One thread of torch: these tensors are tiny, and threads that wait for each other would cost most of the time."""

from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _torch_as_before() -> Iterator[None]:
    """What a trainer sets for its process is gone after the test."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)

"""One thread of torch: the tensors of these tests are tiny, and threads that wait for each other cost most of the time."""

import torch

torch.set_num_threads(1)

"""One thread of torch: these tensors are tiny, and threads that wait for each other would cost most of the time."""

import torch

torch.set_num_threads(1)

"""Who sees whom in a drafter, and the attention that obeys it.

Queries are the positions of all blocks of a row, block after block. Keys are the row's context, then those same block
positions. A block sees the context strictly before its anchor, in the anchor's document, and itself in both
directions; it sees no other block. So no row of the mask is empty, and an empty slot (anchor 0) sees only itself.

Shapes: B rows, S context positions, N block slots, K block positions, Q = N * K queries, T = S + Q keys,
M query heads, G key heads, D dimensions a head.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from harness.errors import EnvironmentFault, HarnessError, UsageError

Attention = Literal["sdpa", "flex"]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Mask = Tensor | BlockMask


def block_mask_mod(anchor_BN: Tensor, anchor_document_BN: Tensor, document_BS: Tensor, block_size: int) -> MaskMod:
    """``sees(row, head, query, key)``, the one definition of the mask.

    It is flex_attention's ``mask_mod``; called with broadcast indices it gives the dense mask.
    """
    size = document_BS.shape[1]

    def sees(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // block_size
        before = (key < size) & (key < anchor_BN[row, block])
        same = document_BS[row, key.clamp(max=size - 1)] == anchor_document_BN[row, block]
        own = (key - size) // block_size == block
        return (before & same) | own

    return sees


def build_mask(
    attention: Attention, anchor_BN: Tensor, anchor_document_BN: Tensor, document_BS: Tensor, block_size: int
) -> Mask:
    """The mask as the attention wants it: ``mask_B1QT`` for SDPA (True: may be seen), a BlockMask for flex."""
    sees = block_mask_mod(anchor_BN, anchor_document_BN, document_BS, block_size)
    rows, size = document_BS.shape
    queries = anchor_BN.shape[1] * block_size
    keys = size + queries
    if attention == "flex":
        blocks: BlockMask = _compiled(create_block_mask)(sees, rows, None, queries, keys, device=document_BS.device)
        return blocks
    row = torch.arange(rows, device=document_BS.device)[:, None, None, None]
    query = torch.arange(queries, device=document_BS.device)[:, None]
    key = torch.arange(keys, device=document_BS.device)
    return sees(row, row.new_zeros(()), query, key)


def attend(query_BMQD: Tensor, key_BGTD: Tensor, value_BGTD: Tensor, mask: Mask) -> Tensor:
    """Grouped-query attention under ``mask``: ``out_BMQD``."""
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query_BMQD, key_BGTD, value_BGTD, attn_mask=mask, enable_gqa=True)
    flex = cast(Callable[..., Any], flex_attention) if torch.compiler.is_compiling() else _compiled(flex_attention)
    out_BMQD: Tensor = flex(query_BMQD, key_BGTD, value_BGTD, block_mask=mask, enable_gqa=True)
    return out_BMQD


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """flex_attention and its mask are dense math unless compiled: gigabytes at the lengths they are for.

    ``fullgraph``: what cannot be compiled, or has been too often, is an error and not dense math.
    """
    return torch.compile(function, dynamic=False, fullgraph=True)


# --- which attention, and that it is no other ------------------------------------------------------------


def choose_attention(wanted: str, backend: str, device: torch.device, fallback: str = "error") -> Attention:
    """flex_attention on CUDA, SDPA elsewhere, unless the config says which.

    Raises UsageError where flex_attention cannot train: it has no backward on the CPU, and under a backend that
    traces but does not compile it would build the whole score matrix, which ``fallback`` "allow" permits.
    """
    if wanted == "auto":
        return "flex" if device.type == "cuda" and backend != "aot_eager" else "sdpa"
    if wanted == "flex" and device.type != "cuda":
        raise UsageError(f"attention=flex trains on CUDA only, and the device is {device}: use attention=sdpa")
    if wanted == "flex" and backend == "aot_eager" and fallback == "error":
        raise UsageError(
            "attention=flex under compile=aot_eager is dense math: use compile=inductor or none, "
            "or permit it by attention_fallback=allow"
        )
    return "flex" if wanted == "flex" else "sdpa"


def slower_attention(wanted: str, backend: str, device: torch.device) -> str:
    """Why "auto" does not have flex_attention on a GPU, or "": a slower run must say that it is."""
    if wanted == "auto" and device.type == "cuda" and backend == "aot_eager":
        return "attention is SDPA with a dense mask: compile=aot_eager compiles no flex_attention"
    return ""


class DenseWatch:
    """While it is entered, flex_attention cannot silently run as dense math, whatever made it so: a call outside a
    compiled function, a backend that only traces, TORCH_COMPILE_DISABLE, a suppressed error.

    torch computes flex_attention without a kernel in one place, forward and backward; this stands in front of it.
    Compiled code never comes there. One for a process, entered before its threads start.
    """

    def __init__(self, fallback: str, warn: Callable[[str], None]) -> None:
        """``warn`` is told once, where ``fallback`` is "allow"."""
        self._fallback = fallback
        self._warn = warn
        self._lock = threading.Lock()
        self._warned = False
        self._home = importlib.import_module("torch._higher_order_ops.flex_attention")
        if not hasattr(self._home, _DENSE):
            raise EnvironmentFault(
                f"torch {torch.__version__} hides where flex_attention is dense math: use attention=sdpa, "
                "or a version of torch that envs/ has"
            )
        self._dense: Callable[..., Any] = getattr(self._home, _DENSE)

    def __enter__(self) -> DenseWatch:
        setattr(self._home, _DENSE, self._watched)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        setattr(self._home, _DENSE, self._dense)

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        if self._fallback == "error":
            raise HarnessError(
                "attention=flex ran as dense math and not as a compiled kernel, which is several times slower and "
                "builds the whole score matrix: use compile=inductor, unset TORCH_COMPILE_DISABLE, or set "
                "attention=sdpa; attention_fallback=allow permits it"
            )
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            self._warn("attention=flex runs as dense math and not as a compiled kernel: this run is far slower for it")
        return self._dense(*args, **kwargs)


_DENSE = "_math_attention_inner"
"""What torch 2.10 to 2.14 compute flex_attention's scores with, in forward and backward, where no kernel does."""

"""A process whose two threads compile forward and backward on one device at once, under the compile guard."""

from __future__ import annotations

import json
import threading

import torch
from torch import nn
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler

from experiments.dflash.compiling import compile_forward
from harness.run import compile_guard

ROUNDS = 4
PATIENCE_S = 200


def main(device: str, backend: str) -> None:
    """Print, as JSON, whether backwards were compiled on other threads than these two; wrong results raise."""
    compile_guard.install()
    meeting, wrong, compiled_on = threading.Barrier(2, timeout=PATIENCE_S), [], set()

    def note(args: CallbackArgs) -> None:
        if args.callback_trigger is CallbackTrigger.LAZY_BACKWARD:
            compiled_on.add(threading.get_ident())

    def work(number: int) -> None:
        try:
            for turn in range(ROUNDS):
                one_round(device, backend, 3 + 2 * turn + number, meeting, alone=turn % 2 == number)
        except BaseException as error:
            wrong.append(error)
            meeting.abort()

    callback_handler.register_start_callback(note)
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    mine = {thread.ident for thread in threads}
    for thread in threads:
        thread.join(PATIENCE_S)
    if wrong:
        raise wrong[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert compiled_on, "no backward was compiled by itself"
    print(json.dumps({"elsewhere": not compiled_on <= mine}))


def one_round(device: str, backend: str, width: int, meeting: threading.Barrier, alone: bool) -> None:
    """A new model: its forward and backward are compiled, and equal the uncompiled ones.

    ``alone``: this thread compiles its forward first, so that its backward meets the other's forward.
    """
    torch.manual_seed(width)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 4)).to(device)
    x = torch.randn(5, width, device=device)
    plain = model(x)
    expected = torch.autograd.grad(plain.square().sum(), list(model.parameters()))
    forward = compile_forward(model, backend)
    out = forward(x) if alone else None
    meeting.wait()  # now one compiles its backward while the other compiles its forward
    out = forward(x) if out is None else out
    torch.autograd.backward(out.square().sum())
    torch.testing.assert_close(out, plain, atol=1e-4, rtol=1e-4)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-4, rtol=1e-4)

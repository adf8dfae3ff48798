"""Build the pinned image of an environment, and prove it."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import click

from harness.commands.terminal import as_json, out, print_json, say
from harness.pin.image.build import build, find, wanted
from harness.pin.image.builders import BuiltImage, find_builder
from harness.pin.image.files import check_files
from harness.places import places
from harness.run.choose import choose_recipe
from harness.run.engine import engines, find_image
from harness.run.resolve import resolve
from harness.run.smoke import Proof, prove


@click.command()
@click.argument("env", required=False)
@click.option(
    "--smoke", is_flag=True, help="Then run the doctor and a recipe in it, shut in, and check what it records."
)
@click.option("--base", metavar="IMAGE", help="Another base image than the Dockerfile's.")
@click.option("--python", metavar="3.X", help="The base's Python, where it is another than the Dockerfile's.")
@click.option("--allow-dirty", is_flag=True, help="Build what is not committed too; the image's revision says so.")
@as_json
def image(env: str | None, smoke: bool, base: str | None, python: str | None, allow_dirty: bool, json_: bool) -> int:
    """Build the image of ENV from its lock, unless this commit's is there; without ENV, of what this machine trains in.

    \b
    Examples:
      harness image cpu --smoke
      harness image cu130
    """
    _end_as_by_ctrl_c()
    where = places()
    if env is None:
        recipe, why = choose_recipe()
        env = resolve(recipe).env
        say(f"no environment named: {env}, that of {recipe}, because {why}")
    wish = wanted(env, where, base, python, allow_dirty)
    builder = find_builder()
    if smoke:
        engines()  # buildah alone would build for minutes, and nothing could run what it made
    made = find(wish, builder)
    if made:
        say(f"{wish.tag} is built already, of commit {wish.revision.commit[:12]}")
    else:
        check_files(wish.env, wish.lock, wish.python, where, say)
        made = build(wish, builder, where, say)
    proofs = prove(find_image(wish.tag, made.identity, otherwise="build it again"), say) if smoke else []
    _print(wish.tag, made, proofs, json_)
    return 0 if all(proof.good for proof in proofs) else 1


def _end_as_by_ctrl_c() -> None:
    """On SIGTERM and with its terminal too, so that the builder and its files end with the command."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, signal.default_int_handler)


def _print(tag: str, made: BuiltImage, proofs: Sequence[Proof], json_: bool) -> None:
    if json_:
        print_json({"tag": tag, **vars(made), "proofs": [vars(proof) for proof in proofs]})
        return
    out.print(f"{tag}  {made.size / 1e9:.2f} GB  {made.identity}", soft_wrap=True)
    for proof in proofs:
        style, mark = ("green", "ok") if proof.good else ("red", "BAD")
        out.print(f"  {mark:3}  {proof.name}: {proof.detail}", style=style, soft_wrap=True, markup=False)

"""What the commands that start a run do with an image: find it, check that it fits, and hand the request over to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.commands.terminal import say
from harness.launch import start_in_image
from harness.places import Places
from harness.records import Run, RunSpec
from harness.run.container import build, check_fits, other_code
from harness.run.engine import find_image
from harness.run.prepare import check_startable
from harness.run.rerun import RecordedImage, changed


def run_recipe(tag: str, spec: RunSpec, arguments: Sequence[str], where: Places, quiet: bool) -> int:
    """Give the harness in the image ``tag`` its command line, which runs ``spec``; its exit code.

    Raises UsageError, with nothing started, where there is no such image or it does not fit.
    """
    image = find_image(tag, otherwise=f"build it: {build(spec)}")
    check_fits(image, spec)
    if difference := other_code(image, where.root):
        say(f"{difference}: the image's runs")
    return start_in_image(image, arguments, where, quiet)


def rerun_recorded(
    run: Run, recorded: RecordedImage, overrides: Sequence[str], options: Sequence[str], where: Places, quiet: bool
) -> int:
    """Repeat ``run`` in the very image that it was made in; the exit code of the harness there.

    Raises UsageError, with nothing started, where no engine has that image.
    """
    spec = changed(run.spec, overrides)
    check_startable(spec)
    another = f"{build(spec)}, and harness run {spec.recipe} --image TAG"
    otherwise = f"run {run.id} was made in it; bring it here, or run the recipe in another: {another}"
    image = find_image(recorded.tag, recorded.digest, otherwise=otherwise)
    say(f"it was made in the image {recorded.tag}: it runs in the same one, {recorded.digest[:19]}")
    outside = not Path(run.folder).is_relative_to(where.runs)
    name, read = (run.folder, (Path(run.folder),)) if outside else (run.id, ())
    return start_in_image(image, ("rerun", name, *overrides, *options), where, quiet, read)

"""What there is to run, as a person sees it in a terminal of 80 columns."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from experiments.recipes import RECIPES
from harness.records import Listed
from harness.view import catalogue

CPU = Listed("cpu", "trains", ("3.11",), "2.13.0+cpu", None, "ab" * 32, False, "/envs/cpu")


def drawn(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(what)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def device(name: str, total: int, capacity: int | None) -> dict[str, Any]:
    return {"device": name, "role": "target", "weights_bytes": total, "total_bytes": total, "capacity_bytes": capacity}


def test_a_plan_says_what_would_run_and_that_nothing_did() -> None:
    plan = {
        "spec": RECIPES["toy"]().to_json(),
        "environment": vars(CPU),
        "devices": [device("cuda:0", 3 * 2**30, 2**32)],
    }
    text = drawn(catalogue.plan_view({**plan, "notes": ["a note"]}))
    assert "would run    toy (spec " in text
    assert "not built yet: harness sync cpu" in " ".join(text.split())  # wherever the line is broken
    assert "note: a note" in text
    assert text.rstrip().endswith("nothing was started")
    row = next(line for line in text.splitlines() if "cuda:0" in line)
    assert row.split() == ["cuda:0", "target", "3.0", "3.0", "4"]


def test_small_models_are_measured_in_a_smaller_unit() -> None:
    plan = {"spec": RECIPES["toy"]().to_json(), "environment": vars(CPU), "devices": [device("cpu", 5 * 2**20, None)]}
    text = drawn(catalogue.plan_view(plan))
    assert "MiB" in text
    assert next(line for line in text.splitlines() if line.startswith(" cpu")).split() == [
        "cpu",
        "target",
        "5.0",
        "5.0",
        "-",
    ]


def test_eight_devices_fit_eighty_columns_whole() -> None:
    sizes = dict.fromkeys(catalogue.MEMORY, 11 * 2**30)
    row = {"role": "target+drafter", "total_bytes": 66 * 2**30, "capacity_bytes": 96 * 2**30, **sizes}
    devices = [{**row, "device": f"cuda:{n}"} for n in range(8)]
    text = drawn(
        catalogue.plan_view({"spec": RECIPES["toy"]().to_json(), "environment": vars(CPU), "devices": devices})
    )
    lines = [line for line in text.splitlines() if "cuda:" in line]
    assert len(lines) == 8
    assert "…" not in "".join(lines)


def test_a_recipe_is_shown_with_every_setting_and_how_to_change_one() -> None:
    spec = RECIPES["tiny"]()
    text = drawn(catalogue.recipe_view(spec))
    assert all(key in text for key in spec.config)
    assert "change one: harness run tiny " in text
    assert "scale=" not in text
    assert "harness run tiny scale=small" in drawn(catalogue.recipe_view(spec, ("small",)))


def test_environments_and_recipes_are_one_line_each() -> None:
    assert "2.13.0+cpu" in drawn(catalogue.envs_table([CPU], 80))
    assert "trains" in drawn(catalogue.envs_table([CPU], 120))
    text = drawn(catalogue.recipes_table([(recipe(), ("small",)) for recipe in RECIPES.values()]))
    assert all(name in text for name in RECIPES)
    assert text.count("scale=small") == len(RECIPES)

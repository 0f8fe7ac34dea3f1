"""`nmt info`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmt.jobs.output import show, show_json


def info(
    run: Annotated[
        Path | None,
        typer.Argument(help="Run, or name of a model.", show_default="the newest under runs/"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print all information as JSON.")] = False,
) -> None:
    """Show a run's model, data, training, hardware and scores.

    The model card, README.md in the run directory, has the same information.

    Examples:
      nmt info
      nmt info runs/multi30k --json
    """
    from nmt.core.layout import format_fields
    from nmt.models import discovery
    from nmt.runs import pretrained
    from nmt.runs.checkpoint import checkpoints
    from nmt.runs.model_card import describe
    from nmt.runs.run_report import collect

    run = run or discovery.newest_run()
    pretrained_dir = pretrained.find(run)
    run = discovery.locate_existing(run)
    if not checkpoints(run):
        discovery.check_is_not_export(run)
    license_of_weights = _license(run)
    run_report = collect(run) | {"license": license_of_weights}
    if json_:
        show_json(run_report)
        return
    fields = describe(run_report)
    if license_of_weights:
        fields["license"] = [f"{license_of_weights} (weights)"]
    if pretrained_dir:
        fields["card"] = ["see README.md in that directory for the training history and evaluation"]
    show("\n".join([str(run), *format_fields(fields)]))


def _license(run: Path) -> str:
    """Return the license of the weights, or those of the models that they were made from."""
    from nmt.core.untrusted_files import read_record
    from nmt.runs.model_card import read_metadata
    from nmt.runs.run_report import origins

    if own := read_metadata(run).get("license"):
        return str(own)
    licenses = [origin["license"] for origin in origins(read_record(run / "data.json"))]
    return ", ".join(dict.fromkeys(licenses))

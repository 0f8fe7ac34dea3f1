"""How positional encodings look: their values, single channels, and how alike two positions are.

Shape letters: M positions or distances, C channels or heads, T positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.model.positions import EncodingTable
from nmt.viz import figures as picture

LINES = 5
"""Channels that are drawn each as a line of its own."""


def draw(tables: Mapping[str, EncodingTable], output: Path) -> None:
    """Draw a row of three panels for each encoding; the suffix of `output` is the picture's format.

    Raises:
        UsageError: matplotlib is not installed or does not know the format.
        NMTError: the picture cannot be written.
    """
    page = picture.figure(output, 14, 0.4 + 3.2 * len(tables))
    for row, (name, table) in zip(page.subplots(len(tables), 3, squeeze=False), tables.items(), strict=True):
        _heat_map(page, row[0], name, table)
        _channels(row[1], table)
        _similarity(row[2], table)
        for axis in (row[0].xaxis, row[0].yaxis, row[1].xaxis, row[2].xaxis):
            axis.get_major_locator().set_params(integer=True)
    picture.save(page, output)


def similarity(table: EncodingTable) -> tuple[Tensor, Tensor]:
    """Return distances and, for each, how alike vectors are that stand so far apart: their cosines, [M, any number].

    Of positions these are all pairs at the distance, nan where there are fewer; of distances it is the cosine to the
    vector of the distance 0; of heads, which have a number for each distance, the share of attention that a key at that
    distance gets where only distances count.
    """
    values_MC = table.values_MC.float()
    if table.column == "head":
        return table.rows_M, values_MC.softmax(0)
    units_MC = torch.nn.functional.normalize(values_MC, dim=1)
    if table.by == "distance":
        return table.rows_M, (units_MC @ units_MC[table.rows_M == 0].t())
    cosines_TT = units_MC @ units_MC.t()
    found_MT = torch.full_like(cosines_TT, torch.nan)
    for apart in range(len(cosines_TT)):
        found_MT[apart, : len(cosines_TT) - apart] = cosines_TT.diagonal(apart)
    return table.rows_M, found_MT


def _heat_map(page: Any, panel: Any, name: str, table: EncodingTable) -> None:
    values_MC = table.values_MC.float()
    most = float(values_MC.abs().max()) or 1.0
    least, last = int(table.rows_M[0]), int(table.rows_M[-1])
    first = 0 if table.column == "channel" else 1
    edges = (first - 0.5, first + values_MC.shape[1] - 0.5, last + 0.5, least - 0.5)
    image = panel.imshow(
        values_MC.numpy(), aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most, extent=edges, interpolation="nearest"
    )
    panel.set(title=name, xlabel=table.column, ylabel=table.by)
    page.colorbar(image, ax=panel)


def _channels(panel: Any, table: EncodingTable) -> None:
    count = table.values_MC.shape[1]
    lines = min(count, LINES if table.column == "channel" else count)
    for number in range(lines):
        # From the first channel to the middle: behind it, sinusoids hardly move.
        column = number * max(1, count // 2 // lines) if table.column == "channel" else number
        label = f"{table.column} {column if table.column == 'channel' else column + 1}"
        panel.plot(table.rows_M.numpy(), table.values_MC[:, column].float().numpy(), label=label, linewidth=1.2)
    panel.set(title=f"single {table.column}s", xlabel=table.by)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def _similarity(panel: Any, table: EncodingTable) -> None:
    rows_M, alike = similarity(table)
    rows = rows_M.numpy()
    if table.column == "head":
        for number, share_M in enumerate(alike.t()):
            panel.plot(rows, share_M.numpy(), label=f"head {number + 1}", linewidth=1.2)
        panel.set(title="share of attention by distance alone", xlabel="distance")
    elif table.by == "distance":
        panel.plot(rows, alike[:, 0].numpy(), linewidth=1.2)
        panel.set(title="cosine to the vector of distance 0", xlabel="distance")
    else:
        low = torch.where(alike.isnan(), torch.inf, alike).amin(1)
        high = torch.where(alike.isnan(), -torch.inf, alike).amax(1)
        panel.fill_between(rows, low.numpy(), high.numpy(), alpha=0.25, label="least to most")
        panel.plot(rows, alike.nanmean(1).numpy(), linewidth=1.2, label="mean")
        panel.set(title="cosine of two positions", xlabel="distance")
        panel.legend(fontsize=8)
    panel.grid(alpha=0.3)

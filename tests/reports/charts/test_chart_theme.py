"""Colours: a reader of either theme, with any colour vision or none, must be able to tell lines apart."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.charts import theme

LINES = ("quorum", "classic", "lazy", "mirrored", "strict-ordered")


def _luminance(colour_hex: str) -> float:
    channels = [int(colour_hex[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2: 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", theme.THEMES)
@pytest.mark.parametrize("line", LINES)
def test_lines_stand_out_from_the_page(name: str, line: str) -> None:
    """Otherwise a queue type's line is lost on a projector."""
    palette = theme.PALETTES[name]
    assert contrast(palette[line], palette["page"]) >= 2.99


@pytest.mark.parametrize("name", theme.THEMES)
@pytest.mark.parametrize("position", [step / 20 for step in range(21)])
def test_every_place_of_the_scale_stands_out_from_the_page(name: str, position: float) -> None:
    """Otherwise the lowest setting's percentile curve cannot be seen."""
    assert contrast(theme.colour(f"@scale/{position:.3f}", name), theme.PALETTES[name]["page"]) >= 3


@pytest.mark.parametrize("name", theme.THEMES)
def test_the_scale_is_ordered_without_colour(name: str) -> None:
    """Otherwise a grey print loses the order of the settings."""
    lights = [
        contrast(theme.colour(f"@scale/{step / 20:.3f}", name), theme.PALETTES[name]["page"]) for step in range(21)
    ]
    assert all(later > earlier for earlier, later in pairwise(lights))


@pytest.mark.parametrize("name", theme.THEMES)
@pytest.mark.parametrize(
    ("text", "ground"),
    [(text, ground) for text in ("ink", "soft", "accent") for ground in ("page", "surface")]
    + [(status, f"{status}-wash") for status in ("good", "warn", "bad")]
    + [("ink", "warn-wash"), ("ink", "bad-wash"), ("ink", "hover")],
)
def test_text_is_readable(name: str, text: str, ground: str) -> None:
    """Otherwise a warning is there and nobody reads it."""
    palette = theme.PALETTES[name]
    assert contrast(palette[text], palette[ground]) >= 4.5


def test_themes_know_the_same_tokens() -> None:
    """Otherwise a figure that is fine in one theme is drawn black in the other."""
    assert set(theme.PALETTES["light"]) == set(theme.PALETTES["dark"])
    assert len(theme.SCALES["light"]) == len(theme.SCALES["dark"])


@given(st.integers(1, 40))
def test_settings_take_distinct_places_from_end_to_end(count: int) -> None:
    """Otherwise two settings share a colour, or the scale is used in part."""
    tokens = [theme.scale_token(position, count) for position in range(count)]
    assert len(set(tokens)) == count
    assert tokens[-1] == "@scale/1.000"
    assert count == 1 or tokens[0] == "@scale/0.000"


def test_resolving_leaves_no_token_and_spares_other_text() -> None:
    """Otherwise plotly is handed a colour it does not know, or a mail address in a name is repainted."""
    figure = {"a": ["@ink", {"b": "@scale/0.5"}], "name": "me@ink.example", "n": 1, "none": None, "at": "@"}
    resolved = theme.resolve(figure, "dark")
    assert resolved["name"] == "me@ink.example"
    assert resolved["at"] == "@"
    assert resolved["a"][0] == theme.PALETTES["dark"]["ink"]
    assert resolved["a"][1]["b"].startswith("#")
    assert figure["a"][0] == "@ink"


def test_an_unknown_token_is_refused() -> None:
    """Otherwise a misspelt token becomes a black line that nobody notices."""
    with pytest.raises(KeyError):
        theme.colour("@inc", "light")


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([1.0, 9.0], 3), ([1.0, 100.0], 5), ([0.8, 400.0], 4), ([3.0], 4), ([], 2), ([0.0, 5.0, 50.0], 3)],
)
def test_log_axes_ask_for_the_ticks_that_give_1_2_5_or_decades(values: list[float], ticks: int) -> None:
    """Otherwise the labels of the small digits overlap."""
    assert theme.log_axis("x", values)["nticks"] == ticks


@given(st.text(max_size=40))
def test_plain_text_cannot_mark_up_or_template(name: str) -> None:
    """Otherwise a queue named ``<b>`` or ``%{x}`` changes the figure."""
    assert not set("<>{}") & set(theme.plain(name))
    json.dumps(theme.plain(name))

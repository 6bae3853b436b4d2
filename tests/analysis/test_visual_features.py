"""Visual features of drawn pictures are those that one sees, whatever the picture's size."""

from __future__ import annotations

import io
import math

import pytest
from PIL import Image, ImageDraw

from pipelines.evaluate.analysis.features import FEATURES, ORIGINAL, VisualFeatures


def jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()


def features(image: Image.Image, text_area: float | None = None) -> dict[str, float]:
    return dict(zip(FEATURES, VisualFeatures().of(jpeg(image), text_area=text_area), strict=True))


def halves(left: str, right: str, *, side: int = 320) -> Image.Image:
    image = Image.new("RGB", (side, side), left)
    ImageDraw.Draw(image).rectangle((side // 2, 0, side, side), fill=right)
    return image


def test_brightness_and_contrast() -> None:
    found = features(halves("black", "white"), text_area=0.25)
    assert (found["brightness"], found["contrast"], found["value"]) == pytest.approx((0.5, 0.5, 0.5), abs=0.02)
    assert (found["text_area"], found["face"]) == (0.25, 0)
    plain = features(Image.new("RGB", (320, 200), (64, 64, 64)))
    assert plain["brightness"] == pytest.approx(0.25, abs=0.01)
    assert plain["contrast"] == pytest.approx(0, abs=0.005)
    assert math.isnan(plain["text_area"])


def test_contrast_is_of_grey_and_not_of_the_largest_channel() -> None:
    """FigSIM 4.3: the standard deviation of grayscale values. Red and white have the same HSV value."""
    found = features(halves("red", "white"))
    assert found["value"] == pytest.approx(1, abs=0.02)
    assert found["contrast"] == pytest.approx((1 - 0.299) / 2, abs=0.02)


def test_the_mean_hue_of_two_reds_is_red() -> None:
    found = features(halves("#ff0010", "#ff1000"))
    assert min(found["hue"], 360 - found["hue"]) < 4, "of 356 and 4 degrees, not 180"
    assert found["saturation"] > 0.9
    assert features(Image.new("RGB", (320, 320), "#0000ff"))["hue"] == pytest.approx(240, abs=3)


def test_edges_are_sharp_at_any_size() -> None:
    fine, large = (features(halves("black", "white", side=side))["sharpness"] for side in (320, 960))
    soft = features(halves("#606060", "#a0a0a0"))["sharpness"]
    assert fine == pytest.approx(large, rel=0.3)
    assert soft < fine / 5


def test_bytes_that_are_no_picture_have_no_features() -> None:
    assert all(math.isnan(x) for x in VisualFeatures().of(b"no picture", text_area=0.1))


def test_the_papers_features_are_of_the_picture_in_its_own_size() -> None:
    fine = Image.effect_noise((1600, 1600), 80).convert("RGB")  # what a reduced picture averages away
    found = dict(zip(ORIGINAL, VisualFeatures().original(jpeg(fine)), strict=True))
    assert found["contrast"] > 1.5 * features(fine)["contrast"]
    reds = dict(zip(ORIGINAL, VisualFeatures().original(jpeg(halves("#ff0010", "#ff1000"))), strict=True))
    assert 150 < reds["hue"] < 210, "the plain mean"
    assert (reds["value"], reds["face"]) == (pytest.approx(1, abs=0.02), 0)
    red = dict(zip(ORIGINAL, VisualFeatures().original(jpeg(halves("red", "white"))), strict=True))
    assert (red["contrast"], red["saturation"]) == pytest.approx(((1 - 0.299) / 2, 0.5), abs=0.02)
    assert all(math.isnan(x) for x in VisualFeatures().original(b"no picture"))

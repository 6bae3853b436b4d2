import io

import imagehash
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps

from bench.second_world import world
from pipelines.collect.read.fingerprint import decoded, fingerprint, fingerprints
from pipelines.collect.read.language import mirrored
from pipelines.core.errors import DataError
from pipelines.curate.dedupe.image_pairs import MIRROR, bits_apart
from tests.curate.ocr.drawing import jpeg

LEAST = 2.0


def picture(seed, *, width=640, height=480):
    rng = np.random.default_rng(seed)
    field = rng.uniform(0, 255, (7, 7, 3)).astype(np.uint8)
    image = Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    for x, y, r in rng.integers(20, 400, (5, 3)):
        pen.ellipse((x - r / 4, y - r / 4, x + r / 4, y + r / 4), fill=tuple(int(c) for c in rng.integers(0, 256, 3)))
    return image


def distance(left, right):
    return (fingerprint(left)[0] ^ fingerprint(right)[0]).bit_count()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([(640, 480), (97, 300), (1920, 1080), (33, 20), (5, 5)]),
    quality=st.integers(15, 100),
    mirror=st.booleans(),
    border=st.sampled_from([0, 7, 40]),
)
def test_bit_equal_to_imagehash_on_the_route(seed, size, quality, mirror, border):
    image = picture(seed, width=size[0], height=size[1])
    if mirror:  # a symmetric picture has exact zeros in its spectrum, where rounding decides
        image = Image.blend(image, ImageOps.mirror(image), 0.5)
    data = jpeg(ImageOps.expand(image, border, "white"), quality=quality)
    assert fingerprint(data)[0] == int(str(imagehash.phash(decoded(data))), 16)


@pytest.mark.parametrize("seed", range(8))
def test_reposts_stay_within_the_radius(seed):
    image = picture(seed)
    original = jpeg(image)
    wide, high = image.size
    copies = {
        "recompressed": jpeg(image, quality=30),
        "smaller": jpeg(image.resize((wide // 2, high // 2))),
        "larger": jpeg(image.resize((wide * 3 // 2, high * 3 // 2))),
        "cropped": jpeg(image.crop((wide // 100, high // 100, wide - wide // 100, high - high // 100))),
        "white border": jpeg(ImageOps.expand(image, wide // 40, "white"), quality=60),
        "black border": jpeg(ImageOps.expand(image, wide // 20, "black"), quality=30),
        "two borders": jpeg(ImageOps.expand(ImageOps.expand(image, 20, "white"), 12, "black")),
    }
    assert {name: d for name, copy in copies.items() if (d := distance(original, copy)) > 10} == {}


def test_a_border_on_three_sides_is_part_of_the_picture():
    image = ImageOps.expand(picture(4), (0, 60, 60, 60), "white")
    seen = decoded(jpeg(image))
    assert seen.width / seen.height == pytest.approx(image.width / image.height, rel=0.01)
    framed = ImageOps.expand(picture(4), 60, "white")
    assert decoded(jpeg(framed)).width < framed.width
    assert distance(jpeg(framed), jpeg(picture(4))) <= 10


def in_phone(image, *, paper, clock="9:41"):
    """A screenshot: a bar above with a clock, and a bar below."""
    bar = image.width // 12
    out = ImageOps.expand(image, (0, bar, 0, bar), paper)
    ImageDraw.Draw(out).text((bar // 2, bar // 4), clock, fill="#808080", font_size=bar // 2)
    return out


@pytest.mark.parametrize("paper", ["black", "white"])
def test_the_bars_of_a_phone_leave_the_inner_hash(paper):
    distances = []
    for seed in range(8):
        shot = fingerprints(jpeg(in_phone(picture(seed), paper=paper), quality=60), min_energy=LEAST)
        original = fingerprints(jpeg(picture(seed)), min_energy=LEAST)
        distances.append(((shot.trimmed ^ original.trimmed).bit_count(), (shot.inner ^ original.inner).bit_count()))
    assert max(inner for _, inner in distances) <= 6
    assert sum(whole for whole, _ in distances) > 4 * sum(inner for _, inner in distances)


def test_a_picture_in_two_frames_of_bars_has_the_same_inner_hash():
    shot = fingerprints(jpeg(in_phone(in_phone(picture(2), paper="black"), paper="white")), min_energy=LEAST)
    assert (shot.inner ^ fingerprint(jpeg(picture(2)))[0]).bit_count() <= 6


def test_a_mark_on_a_plain_border_leaves_the_outer_hash():
    page = ImageOps.expand(picture(6, width=300, height=160), (120, 200, 180, 240), "white")
    marked = page.copy()
    ImageDraw.Draw(marked).text((4, 4), "r/everydaything", fill="black", font_size=20)
    one, other = (fingerprints(jpeg(image), min_energy=LEAST) for image in (page, marked))
    assert (one.trimmed ^ other.trimmed).bit_count() > 12
    assert (one.outer ^ other.outer).bit_count() <= 6


def test_a_caption_of_low_contrast_has_a_hash_and_an_empty_page_none():
    page = Image.new("L", (560, 448), 120)
    empty = page.copy()
    ImageDraw.Draw(page).text((150, 190), "mom said my turn", fill=150, font_size=40)
    plain = fingerprints(jpeg(page), min_energy=LEAST)
    assert plain.trimmed is None and 0.5 < plain.energy < LEAST
    assert fingerprints(jpeg(page), min_energy=LEAST, captioned=True).trimmed is not None
    assert fingerprints(jpeg(empty), min_energy=LEAST, captioned=True).trimmed is None


def test_nothing_but_bands_has_no_inner_hash_of_its_own():
    stripes = Image.new("L", (400, 300), 255)
    stripes.paste(0, (0, 140, 400, 160))
    trimmed, inner, _, _ = fingerprints(jpeg(stripes), min_energy=LEAST)
    assert inner == trimmed


@pytest.mark.parametrize("noise", [0, 4, 25])
@pytest.mark.parametrize("level", [0, 90, 255])
def test_flat_pictures_have_no_hash(noise, level):
    grain = np.random.default_rng(5).normal(level, noise, (300, 400, 3))
    data = jpeg(Image.fromarray(grain.clip(0, 255).astype(np.uint8)))
    value, inner, outer, energy = fingerprints(data, min_energy=LEAST)
    assert value is inner is outer is None
    assert energy < 1.0


def test_pictures_have_a_hash_and_energy_in_grey_levels():
    value, _, _, energy = fingerprints(jpeg(picture(3)), min_energy=LEAST)
    assert value == fingerprint(jpeg(picture(3)))[0]
    half = Image.new("L", (256, 256), 0)
    half.paste(255, (0, 0, 256, 128))
    # A step of 255 has a standard deviation of 127.5, of which the eight lowest frequencies hold 95 %.
    assert fingerprint(jpeg(half))[1] == pytest.approx(127.5 * 0.975, rel=0.02)
    assert energy > 20


def test_damaged_bytes_are_an_error():
    with pytest.raises(DataError):
        fingerprint(b"no picture")
    with pytest.raises(DataError):
        fingerprint(jpeg(picture(1))[:900])


def test_the_hash_of_a_mirrored_picture_follows_from_the_hash():
    distances = []
    for one in world.build(4, count=8, per_template=1, foreign=0, copies=0):
        data = jpeg(Image.open(io.BytesIO(one.data)).convert("RGB"), quality=95)
        hashes = [np.array([fingerprint(picture)[0]], np.uint64) for picture in (data, mirrored(data))]
        distances.append(int(np.bitwise_count(hashes[0] ^ hashes[1] ^ MIRROR)[0]))
        assert bits_apart(*hashes)[0] <= distances[-1]
    assert sorted(distances)[len(distances) // 2] <= 4
    assert max(distances) <= 12

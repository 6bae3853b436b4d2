"""Write what a team has: dumps of its subreddits with the dirt of real ones, an image host, and files of labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import yaml
from PIL import Image, ImageChops, ImageDraw, ImageFont

from crisis_corpus_sandbox.reddit import listing
from crisis_corpus_sandbox.reddit.generated_posts import SandboxPicture, SandboxPost, schedule
from pipelines.core.config.collect import Sandbox

HERE = Path(__file__).resolve().parent
MONTHS = ("2022-11",)
FIRST_ID = int("yq0000", 36)
PLACES = ("market", "station", "library", "harbour", "kitchen", "meadow", "village", "museum", "theatre", "bakery")
TIMES = ("this morning", "last week", "on Sunday", "after the rain", "before lunch", "in the evening", "at noon")
PEOPLE = ("my neighbour", "an old friend", "the postman", "two children", "my sister", "a stranger", "the baker")


@dataclass
class Reddit:
    """The posts of a team's subreddits, their pictures, and the labels by the post's id."""

    port: int
    seed: int = 11
    posts: dict[str, list[SandboxPost]] = field(default_factory=dict)
    pictures: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)

    @property
    def world(self) -> Sandbox:
        return Sandbox(seed=self.seed, months=MONTHS, submissions=1, posts=1, port=self.port)

    def add(self, subreddit: str, posts: Sequence[SandboxPost]) -> list[SandboxPost]:
        """Add posts with times, ids and authors; many authors have several posts."""
        first = FIRST_ID + 10_000_000 * len(self.posts)
        for post in posts:
            post.subreddit = subreddit
        self.posts[subreddit] = schedule(posts, sandbox=self.world, name=subreddit, first_id=first)
        return self.posts[subreddit]

    def picture(self, name: str, data: bytes, *, kind: str, behaviour: str = "ok") -> SandboxPicture:
        """Put a picture on the image host under any name, and return it."""
        self.pictures[name] = data, {"content_type": kind, "behaviour": behaviour}
        return SandboxPicture("", None, address=f"http://127.0.0.1:{self.port}/i/{name}")

    def write(self, folder: Path) -> None:
        """Write what the sandbox's server serves, and the dumps."""
        (folder / "images").mkdir(parents=True)
        for name, (data, _) in self.pictures.items():
            (folder / "images" / name).write_bytes(data)
        (folder / "images.json").write_text(json.dumps({name: how for name, (_, how) in self.pictures.items()}))
        lines = [json.dumps(listing.live(post, port=self.port)) for posts in self.posts.values() for post in posts]
        (folder / "submissions.jsonl").write_text("\n".join(lines) + "\n")
        for subreddit, posts in self.posts.items():
            listing.write(folder / "dumps", posts=posts, sandbox=self.world, subreddit=subreddit)


def sentence(chance: Random) -> str:
    """Return a sentence that tells nothing."""
    return (
        f"{chance.choice(PEOPLE).capitalize()} and I met {chance.choice(TIMES)} near the {chance.choice(PLACES)}, "
        f"{chance.randint(2, 90)} steps from the {chance.choice(PLACES)}."
    )


def text(signs: Sequence[str], *, chance: Random) -> str:
    """Return a mild English text with these sentences among others."""
    parts = [sentence(chance) for _ in range(2)] + list(signs)
    chance.shuffle(parts)
    return " ".join(parts)


def encoded(picture: Image.Image, form: str) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **({"quality": 90} if form in ("JPEG", "WEBP") else {}))
    return out.getvalue()


def write_csv(path: Path, header: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)


JOBS = {
    "watering": "I carried cans of water to the tomatoes.",
    "pruning": "I cut the old branches of the pear tree.",
    "sowing": "I put carrot seeds into the warm soil.",
    "pests & weeds": "I picked snails from the lettuce and pulled up nettles.",
    "beekeeping": "I opened the hives and looked for the queen.",
}
EFFORTS = {
    "rest": "I sat in my chair and did not move.",
    "light": "It was an easy and short day.",
    "heavy": "My arms are tired from the long work.",
    "exhausting": "I could hardly walk home and fell asleep at once.",
}


def allotment(reddit: Reddit, folder: Path) -> None:
    """Add notes from allotments: one label is in the last note only, another is rare."""
    chance = Random(1)
    truth: dict[int, tuple[list[str], str]] = {}
    posts = []
    for number in range(170):
        jobs = [job for job in list(JOBS)[:4] if chance.random() < 0.35] + ["beekeeping"] * (number == 169)
        effort = "exhausting" if number % 57 == 5 else chance.choice(["rest", "light", "heavy"])
        body = text([*(JOBS[job] for job in jobs), EFFORTS[effort]], chance=chance)
        case = {3: "deleted", 40: "deleted_later", 80: "removed", 120: "removed_body"}.get(number, "plain")
        posts.append(SandboxPost(case, f"Garden note {number}", kind="text", body=body))
        truth[id(posts[-1])] = jobs, effort
    posts.append(SandboxPost("plain", "Jardin", kind="text", body="Je suis allé au jardin ce matin avec mes enfants."))
    posts.append(SandboxPost("plain", "Hi", kind="text", body="Ok."))
    copy = posts[10]
    posts.append(SandboxPost("plain", copy.title, kind="text", body=copy.body + " Thanks for reading."))
    posts.append(SandboxPost("outside_window", "Early", kind="text", body=text([], chance=chance)))

    def rows() -> Iterator[Sequence[object]]:
        for place, post in enumerate(reddit.add("allotments", posts)):
            # most have no labels: models label them
            if id(post) in truth and place % 5 < 2:
                jobs, effort = truth[id(post)]
                yield post.id, "|".join(jobs), effort.upper() if place % 7 == 0 else effort
        yield "t3_zzzzzz", "watering", "light"
        yield posts[0].id, "dancing", "light"

    write_csv(folder / "allotment.csv", ["id", "jobs", "effort"], rows())


GROUNDS = {"Red": (190, 40, 40), "Green": (40, 150, 60), "Blue": (40, 60, 190), "Gold leaf": (200, 170, 60)}
# near-duplicates have captions that differ in fewer than three words
WORDS = (
    *("bread", "shoes", "books", "flowers", "tea", "clocks", "hats", "fish", "lamps", "paper", "soap", "keys"),
    *("glass", "wool", "cheese", "boots", "maps", "pens", "bells", "ropes", "tools", "seeds", "honey", "spice"),
    *("cakes", "plants", "coats", "rings", "toys", "bikes"),
)
FORMS = (("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("GIF", "gif"), ("PNG", "jpg"), ("JPEG", "png"))


def lit(picture: Image.Image, *, chance: Random) -> Image.Image:
    """Return a picture in an uneven light, so that no two are near-duplicates."""
    light = Image.frombytes("L", (6, 5), bytes(chance.randint(70, 255) for _ in range(30)))
    light = light.resize(picture.size, Image.Resampling.BICUBIC)
    return ImageChops.multiply(picture, Image.merge("RGB", (light,) * 3))


def drawn(ground: tuple[int, int, int], figures: Sequence[str], *, chance: Random, words: str = "") -> Image.Image:
    """Draw a sign."""
    picture = lit(Image.new("RGB", (220, 160), ground), chance=chance)
    pen = ImageDraw.Draw(picture)
    if "disc" in figures:
        pen.ellipse((20, 20, 80, 80), fill=(250, 250, 250))
    if "bar" in figures:
        pen.rectangle((0, 85, 220, 110), fill=(10, 10, 10))
    if "wedge" in figures:
        pen.polygon([(120, 80), (200, 80), (160, 10)], fill=(250, 250, 90))
    if words:
        pen.rectangle((0, 118, 220, 158), fill=(255, 255, 255))
        pen.text((8, 122), words, fill=(0, 0, 0), font=ImageFont.load_default(17))
    return picture


def shop_signs(reddit: Reddit, folder: Path) -> None:
    """Add signs, most with a word; train lacks one label."""
    chance = Random(2)
    truth: dict[int, tuple[str, list[str]]] = {}
    posts = []
    for number in range(90):
        ground = "Gold leaf" if number in (30, 60) else chance.choice(["Red", "Green", "Blue"])
        figures = [name for name in ("disc", "bar", "wedge") if chance.random() < 0.4]
        words = " ".join(chance.sample(WORDS, 4)) if number % 4 else ""
        form, suffix = FORMS[number % len(FORMS)]
        data = encoded(drawn(GROUNDS[ground], figures, chance=chance, words=words), form)
        behaviour = {7: "missing", 19: "truncated", 27: "redirect", 33: "retry_after"}.get(number, "ok")
        kind = "text/html" if number == 41 else f"image/{form.lower()}"
        picture = reddit.picture(f"sign{number}.{suffix}", data, kind=kind, behaviour=behaviour)
        case = {12: "deleted", 50: "removed"}.get(number, "plain")
        posts.append(SandboxPost(case, f"A sign {number}", pictures=[picture]))
        truth[id(posts[-1])] = ground, figures
    posts.append(SandboxPost("plain", "No picture", kind="text", body="I forgot the picture of the sign."))
    page = reddit.picture("page.png", b"<!doctype html><title>No</title>", kind="text/html")
    posts.append(SandboxPost("plain", "A page", pictures=[page]))

    def rows() -> Iterator[Sequence[object]]:
        for post in reddit.add("shopsigns", posts):
            if id(post) in truth:
                ground, figures = truth[id(post)]
                link = f"https://www.reddit.com/r/shopsigns/comments/{post.id}/x/"
                flags = [int(name in figures) for name in ("disc", "bar", "wedge")]
                yield link, ground, *flags, int(not figures)

    write_csv(folder / "shop-signs.csv", ["permalink", "ground", "disc", "bar", "wedge", "plain"], rows())


HOBBY_SIGN = "{0}, {0} and again {0}: I tried it with {1}."


def letters60(reddit: Reddit, folder: Path) -> None:
    """Add letters with a split of their own: most hobbies are rare, some are in no letter, one is in test alone."""
    chance = Random(3)
    scheme = yaml.safe_load((HERE / "schemes" / "sixty_hobbies.yaml").read_text())
    hobbies = [label["name"] for label in scheme["categories"]["hobby"]["labels"]]
    posts = [SandboxPost("plain", f"Letter {number}", kind="text") for number in range(160)]
    weights = [90.0 if place < 5 else 1.0 for place in range(56)] + [0.0] * 4
    truth: list[tuple[str, list[str], str]] = []
    parts: dict[str, str] = {}
    for post in reddit.add("penpals60", posts):
        # all letters of a person are in one part
        part = parts.setdefault(post.author, ("learn", "learn", "learn", "check", "prove")[len(parts) % 5])
        told = {*chance.choices(hobbies, weights, k=chance.choice([0, 1, 2, 2]))}
        told |= {hobbies[56]} if part == "prove" and len(truth) % 3 == 0 else set()
        signs = [HOBBY_SIGN.format(name, chance.choice(PEOPLE)) for name in sorted(told)]
        post.body = text(signs, chance=chance)
        truth.append((post.id, sorted(told), part))
    rows = ((f"https://redd.it/{name}", ";".join(told), part) for name, told, part in truth)
    write_csv(folder / "letters60.csv", ["post", "hobbies", "part"], rows)


SKIES = {"Clear": (90, 140, 230), "Overcast": (130, 130, 130), "Sunset": (220, 90, 60)}


def skies(reddit: Reddit, folder: Path) -> None:
    """Add skies of two subreddits, some posted in both by one author; what they show, people say in a round."""
    chance = Random(4)
    for subreddit in ("skies", "cloudwatch"):
        posts = []
        for number in range(45):
            weather = chance.choice([*SKIES])
            form = "PNG" if number % 2 else "JPEG"
            data = encoded(sky(SKIES[weather], chance=chance), form)
            # one host in ten says of no picture what it is
            kind = "application/octet-stream" if number % 10 == 9 else f"image/{form.lower()}"
            picture = reddit.picture(f"{subreddit}{number}.jpeg", data, kind=kind)
            posts.append(SandboxPost("plain", "", pictures=[picture]))
        if subreddit == "cloudwatch":
            twice = reddit.posts["skies"][:3]
            posts += [SandboxPost("plain", "again", pictures=post.pictures, author=post.author) for post in twice]
        reddit.add(subreddit, posts)


def sky(colour: tuple[int, int, int], *, chance: Random) -> Image.Image:
    """Draw a sky of clouds, every other one with a moon or a trail."""
    picture = lit(Image.new("RGB", (200, 150), colour), chance=chance)
    pen = ImageDraw.Draw(picture)
    if chance.random() < 0.5:
        pen.ellipse((140, 10, 185, 55), fill=(255, 255, 255))
    if chance.random() < 0.4:
        pen.line((0, 140, 200, 60), fill=(15, 15, 15), width=14)
    return picture


def seen(path: Path) -> dict[str, list[str]]:
    """Return what a person says who looks at a picture of a sky."""
    picture = Image.open(path).convert("RGB")
    wide, high = picture.size
    mean = picture.crop((0, 0, wide // 2, high // 2)).resize((1, 1)).getpixel((0, 0))
    near = min(
        SKIES,
        key=lambda name: sum(abs(a / sum(SKIES[name]) - b / sum(mean)) for a, b in zip(SKIES[name], mean, strict=True)),
    )
    moon = sum(picture.getpixel((int(wide * 0.8125), int(high * 0.22)))) > 720
    trail = sum(picture.getpixel((wide // 2, int(high * 0.667)))) < 120
    things = [name for name, there in (("moon", moon), ("trail", trail)) if there]
    return {"weather": [near], "seen": things or ["empty sky"]}


Writer = Callable[[Reddit, Path], None]
FIRST: dict[str, Writer] = {"allotment": allotment, "shop-signs": shop_signs}
LAST: dict[str, Writer] = {"letters60": letters60, "skies": skies}

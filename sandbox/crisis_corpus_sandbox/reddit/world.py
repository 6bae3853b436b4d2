"""Generate the offline Reddit's submissions with their pictures and labels, before any bytes are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crisis_corpus_sandbox.reddit import captions, generated_posts, label_quotas, seeded
from crisis_corpus_sandbox.reddit.captions import TEXT_STYLES, Composition, body, compose, title
from crisis_corpus_sandbox.reddit.draw import SUFFIX, Meme, Rendering, vary
from crisis_corpus_sandbox.reddit.generated_posts import HOME, SPECIAL, SandboxPicture, SandboxPost, schedule
from pipelines.core.config.collect import Sandbox

# Fault -> (expected drop reason, behaviour of the image host).
FAULTS = {
    "missing": ("not_found", "missing"),
    "gone": ("gone", "gone"),
    "slow": ("too_slow", "slow"),
    "cut_on_the_wire": ("truncated", "truncated"),
    "huge": ("too_large", "huge"),
    "redirect_forbidden": ("host_not_allowed", "redirect_forbidden"),
    "wrong_type": ("content_type", "wrong_type"),
    "placeholder": ("placeholder", "placeholder"),
    "broken": ("not_an_image", "ok"),
    "cut_file": ("truncated", "ok"),
    "too_many_pixels": ("too_many_pixels", "ok"),
    "too_many_frames": ("too_many_frames", "ok"),
    "foreign_host": ("host_not_allowed", "ok"),
    "wrong_scheme": ("scheme", "ok"),
    "dead_address": ("connection", "ok"),
}
# Invented words and names that must never be seen outside the sealed store.
CANARY_TITLE, CANARY_BODY, CANARY_OVERLAY, CANARY_USER = "quillmarrow", "thistlewrang", "zelmork", "Vexthorn_Dapple"
FORMATS = ("gif", "webp", "png", "alpha", "rotated")
SIZES = (560, 600, 640, 680, 720)
PERSONAL = (
    "Write to sam.quiet@example.org if you like it.",
    "Thanks to u/Sleepy_Otter_412 for the idea, seen in r/MondayMood first.",
    "More at https://www.example.org/cats?page=2 on a slow day.",
    "Call +1 202-555-0142 for free hugs.",
    "As @quiet_kite would say, tomorrow is another Monday.",
    "My router is 192.0.2.17 and even it is tired.",
)


class World:
    """Generate the offline Reddit's submissions with memes from the sandbox's seed."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.counts = generated_posts.counts(sandbox.submissions)
        self.posts: list[SandboxPost] = []
        self._rng = seeded(sandbox.seed, "world")
        self._seeds = iter(self._rng.sample(range(10**8), sandbox.submissions * 4 + 400))
        self._files = 0
        self._made: dict[int, Composition] = {}  # by id() of a post
        originals = ("deleted", "removed", "removed_body", "deleted_later", "plain", *(case.name for case in SPECIAL))
        count = sum(self.counts[name] for name in originals)
        memes = label_quotas.figsim(count, rng=seeded(sandbox.seed, "figsim"))
        # Only plain posts get pictures without words: every other case needs words.
        self._textless = [m for m in memes if m.modality == "M3"]
        self._memes = [m for m in memes if m.modality != "M3"]
        self._crises = label_quotas.cradle(sandbox.submissions, rng=seeded(sandbox.seed, "cradle"))

    def build(self) -> list[SandboxPost]:
        """Return all generated submissions with memes in order of creation."""
        self._without_pictures()
        self._faulty()
        self._foreign()
        self._special()
        originals = [self._meme("plain", editable=number % 2 == 1) for number in range(self.counts["plain"])]
        self.posts += originals
        self._copies(originals)
        self._crossposts()
        self._elsewhere()
        self._plant()
        return schedule(self.posts, sandbox=self.sandbox)

    # --- one meme -----------------------------------------------------------------------------------------------

    def _file(self, encoding: str) -> str:
        self._files += 1
        stem = "".join(self._rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9))
        return f"{stem}{self._files:04d}.{SUFFIX[encoding]}"

    def _draw(self, made: Composition, *, plain: str | None = None, like: Meme | None = None) -> tuple[Meme, str]:
        blocks = made.blocks(plain)
        if like is None:
            width, height = self._rng.choice(SIZES), self._rng.choice(SIZES)
            like = Meme(next(self._seeds), made.style, (), blocks, made.stickers, width, height)
        return replace(like, text=blocks), " ".join(blocks)

    def _meme(
        self,
        case: str,
        *,
        encoding: str = "jpeg",
        variant: str = "original",
        kind: str = "image",
        editable: bool = False,
    ) -> SandboxPost:
        """Return a post with one new meme whose labels are the next ones drawn."""
        figsim = self._textless.pop() if case == "plain" and self._textless else self._memes.pop()
        cradle = self._crises.pop()
        made = compose(figsim, cradle, rng=self._rng, editable=editable)
        amount, quality = vary(variant, rng=self._rng)
        meme, text = self._draw(made)
        rendering = Rendering(self._file(encoding), meme, variant, amount, encoding, quality)
        language = "en" if text else "none"
        picture = SandboxPicture(f"b{meme.seed:08d}", rendering, text=text, language=language, variant=variant)
        post = SandboxPost(case, made.title, kind=kind, pictures=[picture], figsim=figsim, cradle=cradle)
        post.carriers = made.carriers
        post.family, self._made[id(post)] = picture.base, made
        if self._rng.random() < 0.1:
            post.body = captions.sentence(self._rng).capitalize() + "."
        return post

    # --- cases --------------------------------------------------------------------------------------------------

    def _each(self, *names: str) -> Iterator[str]:
        for name in names:
            for _ in range(self.counts[name]):
                yield name

    def _without_pictures(self) -> None:
        for name in self._each("deleted", "removed", "removed_body", "deleted_later"):
            post = self._meme(name)
            post.expected = "removed" if name == "removed_body" else name
            self.posts.append(post)
        for name in self._each("text", "link", "video", "outside_window"):
            crises = self._crises.pop()
            expected, kind = (name, "text") if name == "outside_window" else ("no_image", name)
            post = SandboxPost(name, title(crises, rng=self._rng), kind=kind, expected=expected, cradle=crises)
            post.carriers = dict.fromkeys(crises, "text")
            if kind == "text":
                post.body = body(crises, rng=self._rng)
            else:
                post.link = f"https://www.example.org/{kind}/{next(self._seeds)}"
            self.posts.append(post)

    def _faulty(self) -> None:
        for name in self._each(*FAULTS):
            reason, behaviour = FAULTS[name]
            post = self._simple(name, text=captions.sentence(self._rng), language="en")
            picture = post.pictures[0]
            picture.expected, picture.behaviour, picture.fault, post.expected = reason, behaviour, name, reason
            if name in ("foreign_host", "wrong_scheme", "dead_address"):
                path = picture.file
                hosts = ("https://images.example.net", "http://i.example.com", "http://10.0.0.8")
                starts = {"wrong_scheme": "ftp://127.0.0.1", "dead_address": "http://127.0.0.1:9"}
                picture.address = f"{starts.get(name, self._rng.choice(hosts))}/{path}"
                picture.rendering = None
            self.posts.append(post)

    def _simple(self, case: str, *, text: str, language: str) -> SandboxPost:
        """Return a post with a meme without FigSIM labels, whose words cannot or must not be read."""
        crises = self._crises.pop()
        style = self._rng.choice(TEXT_STYLES)
        shown = text[:1].upper() + text[1:]
        meme = Meme(next(self._seeds), style, (shown,), width=self._rng.choice(SIZES), height=self._rng.choice(SIZES))
        suffix = {"too_many_pixels": "png", "too_many_frames": "gif", "placeholder": "png"}
        rendering = Rendering(self._file(suffix.get(case, "jpeg")), meme)
        picture = SandboxPicture(f"b{meme.seed:08d}", rendering, text=shown, language=language)
        post = SandboxPost(case, title(crises, rng=self._rng), pictures=[picture], cradle=crises)
        post.carriers, post.family = dict.fromkeys(crises, "text"), picture.base
        return post

    def _foreign(self) -> None:
        for number in range(self.counts["foreign_language"]):
            language, text = captions.caption(number)
            post = self._simple("foreign_language", text=text, language=language)
            post.expected = post.pictures[0].expected = "not_english"
            self.posts.append(post)

    def _special(self) -> None:
        for name in self._each(*FORMATS, "low_quality", "redirect", "retry_after", "preview_only"):
            variant = name if name == "low_quality" else "original"
            post = self._meme(name, encoding=name if name in FORMATS else "jpeg", variant=variant)
            picture = post.pictures[0]
            if name in ("redirect", "retry_after"):
                picture.behaviour = name
            elif name == "preview_only" and picture.rendering:
                picture.preview, picture.behaviour = replace(picture.rendering, file=self._file("jpeg")), "missing"
            self.posts.append(post)
        for number, name in enumerate(self._each("gallery")):
            self.posts.append(self._gallery(name, failed=number % 7 == 1))

    def _gallery(self, name: str, *, failed: bool) -> SandboxPost:
        post = self._meme(name, kind="gallery")
        post.failed_item = failed
        made = self._made[id(post)]
        for number in range(self._rng.randint(1, 3)):
            meme, text = self._draw(made, plain=None if made.style == "labels" else captions.sentence(self._rng))
            picture = SandboxPicture(f"b{meme.seed:08d}", Rendering(self._file("jpeg"), meme), text=text)
            if number == 2:  # the last picture of the large galleries is missing; the rest is kept
                picture.behaviour, picture.expected, picture.fault = "missing", "not_found", "missing"
            post.pictures.append(picture)
        return post

    # --- copies -------------------------------------------------------------------------------------------------

    def _copies(self, originals: list[SandboxPost]) -> None:
        """Repost originals: those with enough words for edits first, each of them up to four times."""
        able = [p for p in originals if self._made[id(p)].editable]
        near = list(self._each(*(c.name for c in generated_posts.DUPLICATES)))
        self._rng.shuffle(near)
        # 26 originals for 38 reposts, so that a third of the groups have three or more members
        pool = max(1, round(len(near) * 0.7))
        others = list(self._each("edit3", "edit4", "mirrored"))
        for number, variant in enumerate([*near, *others]):
            self.posts.append(self._copy(able[number % pool], variant))
        templates = able[pool:] or able
        for number in range(self.counts["recaptioned"]):
            self.posts.append(self._copy(templates[number // 3 % len(templates)], "recaptioned"))

    def _copy(self, original: SandboxPost, variant: str) -> SandboxPost:
        source, made = original.pictures[0], self._made[id(original)]
        plain, rng = made.plain, self._rng
        if variant.startswith("edit"):
            plain = captions.edit(plain, words=int(variant[4:]), rng=rng)
        elif variant == "recaptioned":
            plain = captions.sentence_for_edits(rng)
        if source.rendering is None:
            raise ValueError("an original needs a picture")
        meme, text = self._draw(made, plain=plain, like=source.rendering.meme)
        meme = replace(meme, mirrored=variant == "mirrored")
        amount, quality = vary(variant, rng=rng)
        if variant == "identical":
            quality = source.rendering.quality
        rendering = Rendering(self._file("jpeg"), meme, variant, amount, quality=quality)
        picture = SandboxPicture(source.base, rendering, text, source.language, variant)
        rank = 1 + sum(p.family == original.family for p in self.posts)
        name = original.title if rng.random() < 0.3 else title(original.cradle, rng=rng)
        post = SandboxPost(variant, name, pictures=[picture], figsim=original.figsim, cradle=original.cradle)
        post.carriers, post.family, post.rank = original.carriers, original.family, rank
        return post

    def _crossposts(self) -> None:
        parents = [p for p in self.posts if p.case == "plain"]
        for _ in self._each("crosspost"):
            parent = self._rng.choice(parents)
            post = SandboxPost("crosspost", parent.title, expected="crosspost", parent=parent, cradle=parent.cradle)
            post.carriers, post.family, post.rank = dict.fromkeys(post.cradle, "text"), parent.family, 90
            self.posts.append(post)

    def _elsewhere(self) -> None:
        """Add posts of other communities; some repeat one of ours, with its community's name nested in them."""
        parents = [p for p in self.posts if p.case == "plain"]
        names = ("MondayMood", "SuicideMemeTalk", "CatsAtDesks", "CasualRain")
        for number in range(generated_posts.elsewhere(self.sandbox.submissions)):
            post = SandboxPost("elsewhere", title((), rng=self._rng), kind="text", subreddit=names[number % len(names)])
            post.expected, post.body = "other_subreddit", body((), rng=self._rng)
            if number % 4 == 0:
                post.parent = self._rng.choice(parents)
                post.kind, post.body, post.family, post.rank = "image", "", post.parent.family, 91
            self.posts.append(post)

    def _plant(self) -> None:
        """Put the canary words, the canary user and personal data to scrub into kept posts of both halves."""
        kept = [p for p in self.posts if p.case == "plain" and p.figsim and p.figsim.modality != "M3"]
        single = [p for p in kept if sum(q.family == p.family for q in self.posts) == 1]
        for post in single[:2]:
            post.title, post.author = f"{post.title} {CANARY_TITLE}", CANARY_USER
            post.body = f"Some call it {CANARY_BODY}. Ask u/{CANARY_USER} about it."
        drawn = [p for p in single[2:] if self._made[id(p)].style in ("capitals", *TEXT_STYLES)][:2]
        for post in drawn:
            picture, made = post.pictures[0], self._made[id(post)]
            if picture.rendering:
                plain = f"me and my {CANARY_OVERLAY} on monday morning"
                meme, picture.text = self._draw(made, plain=plain, like=picture.rendering.meme)
                picture.rendering = replace(picture.rendering, meme=replace(meme, sized_for=meme.text))
        for post, line in zip(single[10:], PERSONAL * 2, strict=False):
            post.body = line
        texts = [p for p in self.posts if p.kind == "text" and p.subreddit == HOME and p.case == "text"]
        texts[0].body += f"\n\nStill {CANARY_BODY}."

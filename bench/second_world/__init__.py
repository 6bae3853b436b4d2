"""Draw a world of memes that shares no code, font choice or caption with the sandbox, to measure the product on it.

It was written without reading the product's OCR, fingerprints or the sandbox's drawing. `world.build(seed)` yields the
pictures and their truth. Fonts come from matplotlib, the system and the folders in CORPUS_BENCH_FONTS (`fonts.py`).
"""

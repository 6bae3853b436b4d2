"""Build the sections and tables of the report on meme models, beside the figures of the FigSIM paper."""

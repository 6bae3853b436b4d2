"""Hand out annotation queues as CSV files."""

from pipelines.annotate.backends._sheets import Sheets


class Csv(Sheets):
    """A backend whose queues are CSV files, with the guideline in a file beside them."""

    suffix = ".csv"

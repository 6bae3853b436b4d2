"""Hand out annotation queues as workbooks of a spreadsheet program."""

from pipelines.annotate.backends._sheets import Sheets


class Xlsx(Sheets):
    """A backend whose queues are workbooks with lists of the labels to choose from and the guideline as a sheet."""

    suffix = ".xlsx"

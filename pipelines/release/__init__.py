"""Release labels and splits of a corpus under new ids, with a script that fetches the content again."""

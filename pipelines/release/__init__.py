"""Release ids, labels and splits under new ids, with a script that fetches the content again."""

"""
### posts_refresh

Read the listings of `posts` before they overflow, if a source of the corpus, such as `reddit`, has them: **refresh**
reads the subreddits that are due back to what is known, stores new posts sealed until their month closes, and asks the
other sources for gaps of published months. If such a month has gained posts, the tasks of `posts_collect` follow and
add them in one commit; otherwise they are skipped.

The schedule is `listing.schedule` of that source in `params.yaml`; a run in which no subreddit is due sends no request.
Manually: `corpus airflow trigger posts_refresh`.
"""

from __future__ import annotations

from dvc_airflow.dags import refresh_dag

dag = refresh_dag("posts", doc=__doc__)

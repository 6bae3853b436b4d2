"""Run an Argilla server with one owner: started by ``.argilla/bin/python``, all in one process to start once only.

Arguments: port, API key of the owner. ``ARGILLA_HOME_PATH`` says where its database is. Its Redis is fakeredis, over
loopback; jobs that it queues stay there, none of them matters here.
"""

import asyncio
import os
import sys
import threading

from fakeredis import TcpFakeServer


def redis() -> str:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"redis://127.0.0.1:{server.server_address[1]}/0"


async def owner(key: str) -> None:
    from argilla_server.cli.database.users.create import _create
    from argilla_server.database import async_engine
    from argilla_server.enums import UserRole

    await _create(first_name="Owner", username="owner", role=UserRole.owner, password=key, api_key=key)
    await async_engine.dispose()


def main(port: int, key: str) -> None:
    os.environ["ARGILLA_REDIS_URL"] = redis()
    # the server reads its settings when it is imported
    import uvicorn
    from argilla_server.cli.database.migrate import migrate_db

    migrate_db("head")
    asyncio.run(owner(key))
    uvicorn.run("argilla_server:app", host="127.0.0.1", port=port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

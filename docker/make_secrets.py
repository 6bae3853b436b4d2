"""Write the secrets of compose.yaml that are missing into docker/secrets, one file each.

Compose mounts a file with its permissions on the host: the files are readable, and the folder, which no container
sees, is private. Files of keys of others are empty until a person fills them; `--sandbox` writes those of the offline
vendors.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "secrets"
DATABASES = "airflow", "mlflow", "vault", "answers", "refresh", "journal", "label_studio"
PROVIDERS = "OPENAI", "ANTHROPIC", "GOOGLE", "AZURE", "GUARD", "LOCAL"
OTHERS = ("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET", *(f"CORPUS_{name}_KEY" for name in PROVIDERS))


def write(folder: Path, *, sandbox: bool = False) -> list[str]:
    """Write the missing files, without a newline at their end; return their names."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    new: list[str] = []

    def keep(name: str, text: str) -> str:
        path = folder / name
        if not path.exists():
            path.write_text(text)
            path.chmod(0o444)
            new.append(name)
        return path.read_text()

    def draw(name: str) -> str:
        return keep(name, secrets.token_hex(32))

    address = {name: f"{name}:{draw(f'postgres_{name}')}@postgres:5432/{name}" for name in DATABASES}
    draw("postgres_admin")
    keep("airflow_database", f"postgresql+psycopg2://{address['airflow']}")
    keep("MLFLOW_BACKEND_STORE_URI", f"postgresql+psycopg2://{address['mlflow']}")
    for name in ("vault", "answers", "refresh", "journal"):
        keep(f"CORPUS_{name.upper()}_URL", f"postgresql+psycopg2://{address[name]}")
    keep("airflow_broker", f"redis://:{draw('redis')}@redis:6379/0")
    keep("airflow_results", f"redis://:{draw('redis')}@redis:6379/1")
    keep("airflow_fernet", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    for name in ("airflow_jwt", "airflow_api", "CORPUS_AIRFLOW_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"):
        draw(name)
    keep("MLFLOW_AUTH_ADMIN_PASSWORD", draw("MLFLOW_TRACKING_PASSWORD"))
    keep("corpus", secrets.token_hex(64))
    access = {"accessKey": draw("AWS_ACCESS_KEY_ID"), "secretKey": draw("AWS_SECRET_ACCESS_KEY")}
    owner = {"name": "corpus", "credentials": [access], "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
    keep("s3.json", json.dumps({"identities": [owner]}))
    login = keep("git_users", f"corpus:{secrets.token_hex(24)}\n")
    keep("git_credentials", f"username=corpus\npassword={login.partition(':')[2]}")
    # Label Studio's tokens have 40 characters
    keep("LABEL_STUDIO_USER_TOKEN", keep("CORPUS_LABEL_STUDIO_KEY", secrets.token_hex(20)))
    draw("LABEL_STUDIO_PASSWORD")
    for name in OTHERS:
        keep(name, "sandbox" if sandbox else "")
    return new


if __name__ == "__main__":
    for name in write(FOLDER, sandbox="--sandbox" in sys.argv[1:]):
        sys.stdout.write(f"{name}\n")

"""Credentials for Prometheus servers: files in one folder, which an operator mounts from a secret.

A demand source names a file without its suffix: `credentials: team-a` reads `team-a.yaml`:

    token_file: /var/run/secrets/prometheus/token     # or token
    ca_file: /etc/ssl/prometheus-ca.pem
    cert_file: /etc/ssl/client.pem
    key_file: /etc/ssl/client.key
    headers: {X-Scope-OrgID: team-a}

The files are read for each window, so that a rotated token counts at once.
"""

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints, model_validator

from deploy.common.errors import UnreachableError
from fleet.documents import Frozen, RuleError, parse_document, read_model
from fleet.errors import DocumentError

HeaderName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9-]+$")]
HeaderValue = Annotated[str, StringConstraints(max_length=1_000, pattern=r"^[\x20-\x7e]*$")]


class Credentials(Frozen):
    token: SecretStr | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=20)

    @model_validator(mode="after")
    def _is_complete(self) -> "Credentials":
        if self.token is not None and self.token_file is not None:
            raise RuleError([(("token_file",), "give either token or token_file")])
        if (self.cert_file is None) != (self.key_file is None):
            raise RuleError([(("key_file",), "is required with cert_file, and only with it")])
        return self

    def http_headers(self) -> dict[str, str]:
        """UnreachableError where the token cannot be read."""
        token = None if self.token is None else self.token.get_secret_value()
        if self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="ascii").strip()
            except (OSError, UnicodeError) as error:
                raise UnreachableError(f"token_file: {type(error).__name__}") from error
        return dict(self.headers) | ({} if token is None else {"Authorization": f"Bearer {token}"})

    def tls(self) -> ssl.SSLContext | None:
        """None: as the machine trusts.  UnreachableError where a file cannot be read."""
        if self.ca_file is None and self.cert_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise UnreachableError(f"ca_file, cert_file or key_file: {type(error).__name__}") from error
        return context


def read_credentials(folder: Path | None, name: str | None) -> Credentials:
    """UnreachableError names what is missing; it never contains what a file holds."""
    if name is None:
        return Credentials()
    if folder is None:
        raise UnreachableError(f"credentials: {name!r}: this controller has no folder of credentials")
    try:
        document = parse_document((folder / f"{name}.yaml").read_text(encoding="utf-8"), name=name)
        return read_model(document, Credentials)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(f"credentials: {name!r}: {type(error).__name__}") from error
    except DocumentError as error:
        paths = ", ".join(problem.path for problem in error.problems)
        raise UnreachableError(f"credentials: {name!r}: invalid {paths or 'document'}") from error

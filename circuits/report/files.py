"""JSON files that people hand to the report."""

import json
from pathlib import Path
from typing import Any

from trained.errors import BadInput


def read_objects(file: Path) -> list[Any]:
    """The JSON objects in a file that holds one or a list of them."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"cannot read {file}: {error}") from error
    return found if isinstance(found, list) else [found]

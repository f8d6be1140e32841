"""One POST of a small JSON when a sweep ends. A hook that fails costs nothing but a line."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any

from sweep.studies.spec import Notify
from sweep.urls import expanded

_SECONDS = 10


def notify(hook: Notify | None, event: str, facts: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Tell the sweep file's hook how the sweep ended, if it asked for this kind of end.

    The URL may name environment variables, so that no secret stands in a file; neither it nor what goes wrong with it
    is shown.
    """
    if hook is None or event not in hook.on:
        return
    url = expanded(hook.url)
    if not url.startswith(("http://", "https://")):
        note("notify.url: expected an http(s) URL, or a $VARIABLE that holds one; nobody was told")
        return
    body = json.dumps({"event": event, **facts}).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_SECONDS):
            pass
    except (OSError, ValueError, HTTPException) as error:
        note(f"notify: the hook did not take the news ({type(error).__name__}); the sweep is not touched by it")

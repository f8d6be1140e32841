"""From committed fits to MLflow runs, as often as asked: what MLflow has already is not written twice.

The ledger alone says what is true; runs that are not, any more, are removed when the sweep has ended.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweep.errors import first_line
from sweep.store.home import Home
from sweep.store.ledger import Ledger
from sweep.urls import expanded, redacted

if TYPE_CHECKING:
    from sweep.store.mlflow_store import MlflowStore, Pictures, Present
    from sweep.store.run_contents import RunContent

_FIRST_SECONDS = 5.0  # before MLflow, which takes seconds to import, is looked for


class Recorder:
    """Writes to MLflow from a thread of its own, so that a slow or dead server never stops a sweep."""

    def __init__(
        self,
        sweep: str,
        tracking: str,
        artifacts: str | None,
        home: Home,
        ledger: Ledger,
        note: Callable[[str], None],
        pictures: Pictures | None = None,
    ) -> None:
        self.sweep, self.home, self.ledger, self._note, self._pictures = sweep, home, ledger, note, pictures
        self._local = tracking == "sqlite"
        self.uri = home.mlflow_url if self._local else expanded(tracking)
        self._artifacts = artifacts or (home.mlflow_artifacts.as_uri() if self._local else None)
        self._said: set[str] = set()
        self._store: MlflowStore | None = None
        self._store_id = ""
        self._present: dict[str, list[Present]] = {}
        self._due = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def poke(self) -> None:
        """There is something new in the ledger."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="mlflow-recorder", daemon=True)
            self._thread.start()
        self._due.set()

    def finish(self) -> bool:
        """Stop the thread and record what is left; False if MLflow could not be reached."""
        if self._thread is not None:
            self._stop.set()
            self._due.set()
            self._thread.join()
        return self._try_sync(complete=True)

    def _loop(self) -> None:
        self._stop.wait(_FIRST_SECONDS)  # a sweep that is stopped right after its start should not wait for an import
        while not self._stop.is_set():
            self._due.wait()
            self._due.clear()
            if self._stop.is_set():
                return
            start = time.monotonic()
            self._try_sync(complete=False)
            # Reading the ledger grows with the sweep: keep it to a small share of the time.
            self._stop.wait(max(2.0, 10 * (time.monotonic() - start)))

    def _try_sync(self, *, complete: bool) -> bool:
        try:
            try:
                self.sync(complete=complete)
            except Exception:
                if not (self._local and self._set_aside()):
                    raise
                self.sync(complete=complete)
        except Exception as error:  # whatever MLflow, its store or the network raises
            self._say(
                f"MLflow at {redacted(self.uri)} cannot be reached ({first_line(error)[:160]}); "
                "the sweep goes on, and `sweep run` again will record what is missing"
            )
            return False
        return True

    def _set_aside(self) -> bool:
        from sweep.store.mlflow_store import set_damaged_store_aside

        aside = set_damaged_store_aside(self.home)
        if aside is not None:
            self._say(f"{self.home.mlflow_path.name} is damaged: it is now {aside.name}, and written anew")
        return aside is not None

    def sync(self, *, complete: bool = True) -> int:
        """Write every run that MLflow does not have yet; returns how many.

        `complete` says that the ledger holds all there will be: runs of which it knows nothing are then removed.
        """
        state, whole = self.ledger.state_digest(self.sweep), f"sweep {self.sweep}"
        if complete and self._is_recorded(whole, state):
            return 0
        from sweep.store.run_contents import run_contents

        try:
            written, wanted = 0, set()
            store = self._open()
            # Whoever dies on the way leaves neither the old state nor the new one behind.
            self.ledger.forget_runs(self._store_id, [whole])
            for run in run_contents(self.ledger, self.home, self.sweep):
                wanted.add(run.run_key)
                written += self._bring_up_to_date(store, run)
            for key in list(self._present) if complete else ():
                if key not in wanted:
                    self._remove(store, key)
        except BaseException:
            self._store = None  # what was written half-way is found when the store is looked at again
            raise
        if complete:
            self.ledger.remember_run(self._store_id, whole, str(len(wanted)), state)
        return written

    def _is_recorded(self, whole: str, state: str) -> bool:
        """Whether the store, without a look at its runs, holds the sweep as the ledger has it."""
        from sweep.store.mlflow_store import glimpse
        from sweep.store.run_contents import experiments_of

        if self._local:
            self._set_aside()  # damage may be where neither we nor MLflow look first
            found = glimpse(self.home, experiments_of(self.sweep), self._artifacts)
            if found is None:
                return False
            store, _, count = found.rpartition(" ")
            return self.ledger.recorded_runs(store).get(whole) == (count, state)
        self._open()
        recorded = self.ledger.recorded_runs(self._store_id).get(whole, ("", ""))
        complete = sum(1 for runs in self._present.values() for run in runs if run.content)
        return recorded == (str(complete), state)

    def _open(self) -> MlflowStore:
        if self._store is None:
            from sweep.store.mlflow_store import open_store
            from sweep.store.run_contents import experiments_of

            names = experiments_of(self.sweep)
            store, self._store_id = open_store(self.uri, self.home, names, self._artifacts, self.ledger.id)
            self._present = store.present(self.ledger.old_run_ids())
            self._store = store
        return self._store

    def _bring_up_to_date(self, store: MlflowStore, run: RunContent) -> int:
        """Write a run unless it is there as it should be; of several keep one."""
        there = self._present.get(run.run_key, [])
        right = [each for each in there if each.content == run.content][:1]
        for each in there:
            if each not in right:
                store.delete(each)
        self._present[run.run_key] = right or [store.write(run, lambda folder: self._files(run, folder))]
        return 1 - len(right)

    def _remove(self, store: MlflowStore, run_key: str) -> None:
        for each in self._present.pop(run_key):
            store.delete(each)

    def _files(self, run: RunContent, folder: Path) -> list[Path]:
        """The arrays of a method's refit, and pictures of them."""
        arrays = self.home.read_artifact(*run.artifact) if run.artifact else None
        if not arrays:
            return []
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        path = folder / "metric.npz"
        path.write_bytes(buffer.getvalue())
        if self._pictures is None:
            return [path]
        try:
            return [path, *self._pictures(run.params["method"], arrays, folder)]
        except Exception as error:  # a run without its picture is better than none
            self._say(f"no pictures for MLflow's runs: {first_line(error)[:160]}")
            return [path]

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._note(message)
        self._said.add(message)

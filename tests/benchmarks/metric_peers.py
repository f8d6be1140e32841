"""metric-learn's LMNN and ITML as estimators of a sweep file: `estimator: metric_peers:LMNN`.

metric-learn 0.7 calls two functions of scikit-learn with a keyword that scikit-learn 1.8 has given another name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metric_learn
from metric_learn import _util


def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        if "force_all_finite" in keywords:
            keywords["ensure_all_finite"] = keywords.pop("force_all_finite")
        return function(*arguments, **keywords)

    return call


_util.check_X_y, _util.check_array = _renamed(_util.check_X_y), _renamed(_util.check_array)


class LMNN(metric_learn.LMNN):  # type: ignore[misc]
    pass


class ITML(metric_learn.ITML_Supervised):  # type: ignore[misc]
    pass

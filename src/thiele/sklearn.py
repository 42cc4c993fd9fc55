"""`GPRegressor` and `GPClassifier`: a series as scikit-learn sees it, for pipelines, cross-validation and grid search.

`X` is one column, the times; of several, `column` says which. `y` holds no missing values, as scikit-learn has it.
Everything else that a fit can do is at `fit_`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("thiele.sklearn needs scikit-learn 1.6: `pip install thiele[sklearn]`") from error

from thiele.kernels import Matern32, Stack
from thiele.likelihoods import Bernoulli, Categorical, Gaussian
from thiele.model import GP


class GPRegressor(RegressorMixin, BaseEstimator):
    """A Gaussian process over time with any likelihood whose values have a mean.

    `kernel`, `likelihood`, `inducing`, `rule` and `mean` are those of `th.GP` (defaults: `Matern32()`, `Gaussian()`);
    `tolerance` and `max_steps` those of its `fit`. With `learn=False` hyperparameters stay as they are given. `column`
    is the place of the times among the columns of `X`, whose others are then not used; None: `X` has no others.

    >>> import numpy as np
    >>> t = np.linspace(0.0, 10.0, 30)
    >>> regressor = GPRegressor(Matern32(1.0, 2.0), Gaussian(0.01), learn=False).fit(t[:, None], np.sin(t))
    >>> bool(regressor.score(t[:, None], np.sin(t)) > 0.99)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        likelihood: Any = None,
        *,
        inducing: Any = None,
        rule: Any = None,
        mean: Any = None,
        column: int | None = None,
        learn: bool = True,
        tolerance: float = 1e-3,
        max_steps: int = 200,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.inducing = inducing
        self.rule = rule
        self.mean = mean
        self.column = column
        self.learn = learn
        self.tolerance = tolerance
        self.max_steps = max_steps

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from times `X` (n, 1) and values `y` (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        kernel = Matern32() if self.kernel is None else self.kernel
        likelihood = Gaussian() if self.likelihood is None else self.likelihood
        self.fit_ = _fitted(self, kernel, likelihood, _times(X, self.column), np.asarray(y, float))
        self.n_iter_ = _steps(self.fit_)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of an observation at each time, and its standard deviation if asked for."""
        p = self.fit_at(X)
        return (p.y_mean, np.sqrt(p.y_var)) if return_std else p.y_mean

    def predict_interval(self, X: Any, level: float = 0.95) -> np.ndarray:
        """The central interval that holds an observation with probability `level`: (n, 2)."""
        return np.stack(self.fit_at(X).interval(level), axis=1)

    def fit_at(self, X: Any) -> Any:
        """The whole `thiele.Prediction` at these times."""
        check_is_fitted(self)
        return self.fit_.predict(_times(validate_data(self, X, dtype=np.float64, reset=False), self.column))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # where the answer lies in columns that are not the time
        return tags


class GPClassifier(ClassifierMixin, BaseEstimator):
    """Classes whose probabilities are functions of time: two by a Bernoulli, more by a Categorical likelihood.

    `kernel` is that of each latent function: one for two classes, as many independent copies as there are classes
    otherwise. The rest is as in `GPRegressor`.
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        inducing: Any = None,
        rule: Any = None,
        mean: Any = None,
        column: int | None = None,
        learn: bool = True,
        tolerance: float = 1e-3,
        max_steps: int = 200,
    ) -> None:
        self.kernel = kernel
        self.inducing = inducing
        self.rule = rule
        self.mean = mean
        self.column = column
        self.learn = learn
        self.tolerance = tolerance
        self.max_steps = max_steps

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from times `X` (n, 1) and labels `y` (n,), which may be of any type."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, code = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must hold at least two classes, got one class: {self.classes_[0]!r}")
        kernel = Matern32() if self.kernel is None else self.kernel
        count = len(self.classes_)
        several = count > 2
        latent, likelihood = (Stack(*[kernel] * count), Categorical(count)) if several else (kernel, Bernoulli())
        self.fit_ = _fitted(self, latent, likelihood, _times(X, self.column), code.astype(float))
        self.n_iter_ = _steps(self.fit_)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class at each time: (n, classes)."""
        check_is_fitted(self)
        times = _times(validate_data(self, X, dtype=np.float64, reset=False), self.column)
        mean = self.fit_.predict(times).y_mean
        if mean.ndim == 1:
            return np.stack([1.0 - mean, mean], axis=1)
        return mean / np.sum(mean, axis=1, keepdims=True)  # quadrature leaves a rounding of the sum

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class at each time."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # where the answer lies in columns that are not the time
        return tags


def _times(X: np.ndarray, column: int | None) -> np.ndarray:
    if column is None and X.shape[1] != 1:
        raise ValueError(
            f"`X` must have one column, the times, got {X.shape[1]}; `column` says which, and the others are not used"
        )
    if column is not None and not 0 <= column < X.shape[1]:
        raise ValueError(f"`column` must be the place of a column of `X`, 0 to {X.shape[1] - 1}, got {column!r}")
    return X[:, column or 0]


def _fitted(estimator: Any, kernel: Any, likelihood: Any, t: np.ndarray, y: np.ndarray) -> Any:
    settings = {} if estimator.rule is None else {"rule": estimator.rule}
    model = GP(kernel, likelihood, inducing=estimator.inducing, mean=estimator.mean, **settings)
    if not estimator.learn:
        return model.condition(t, y)
    return model.fit(t, y, tolerance=estimator.tolerance, max_steps=estimator.max_steps, progress=False)


def _steps(fit: Any) -> int:
    return 1 if fit.trace is None else max(len(fit.trace.objective) - 1, 1)

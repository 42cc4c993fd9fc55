"""Ten lines: fit a series, look at it, predict."""

import numpy as np

import thiele as th

data = th.data.motorcycle()  # any arrays will do: times in any order, also dates; NaN where a value is missing
model = th.GP(th.Matern32(), th.Gaussian())  # what is not given starts from the data
fit = model.fit(data.time, data.value)  # learns variance, lengthscale, noise and mean
print(fit)
p = fit.predict(np.linspace(-5.0, 70.0, 200))  # before, between and after the data
lower, upper = p.interval(0.95)  # an observation lies between with probability 0.95
draws = fit.sample([10.0, 20.0, 30.0], n=5)  # joint draws of the latent function
ax = fit.plot(horizon=5.0)

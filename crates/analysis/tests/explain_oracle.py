"""Each input line has the values of two variables, separated by `;`. For each line, prints Spearman's correlation, the
mutual information of the variables (each different value is a class), and the rank of each value of the first variable.
Equal values have the mean of their ranks."""

import sys, warnings
import numpy as np
from scipy import stats
warnings.simplefilter("ignore")
for line in sys.stdin:
    a, b = (np.array([float(v) for v in part.split()]) for part in line.split(";"))
    rho = stats.spearmanr(a, b).statistic
    table = stats.contingency.crosstab(a, b).count
    p = table / table.sum()
    information = stats.entropy(p.ravel(), np.outer(p.sum(1), p.sum(0)).ravel())
    print(repr(float(0 if np.isnan(rho) else rho)), repr(float(information)),
          *[repr(float(r)) for r in stats.rankdata(a)])

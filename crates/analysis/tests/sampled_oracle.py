"""Makes populations of calls, times a random sample of them as `run --budget` does, and prints the true totals.

This program follows docs/sampling.md, and uses no code of Counterpoint. A thread times a call with probability
1/period. After it has timed a call, it draws the distance to the next timed call from a geometric distribution. Here,
the first 16 calls of an op have the period 1; in a run, these are the first 8. Counters are read in a timed call with
probability 1/counter_period. Expected totals and intervals are computed by numpy and scipy.

Prints for each draw: its name, `call WEIGHT SKIPPED VALUE` for each call whose value is known,
`calls N`, `truth TOTAL` and `expect TOTAL BELOW ABOVE`, where the last two are distances to the ends
of the interval.
"""

import math
import sys

import numpy
import scipy.stats

FIRST, DRAWS = 16, 100
random = numpy.random.default_rng(19)


def drawn(times, controller, counter_period=1):
    """For each call whose value is known, returns its weight, the number of skipped calls before it, and its value."""
    known, skipped, gap, cost, passed = [], 0, 0, 0.0, 0.0
    period = 1
    for place, time in enumerate(times):
        passed += time
        if gap > 0:
            gap, skipped = gap - 1, skipped + 1
            continue
        if random.random() < 1 / counter_period:
            known.append((period * counter_period, skipped, time))
            skipped = 0
        else:
            skipped += 1
        cost += 60.0
        # The period until the next timed call is chosen now, based on the calls so far.
        period = 1 if place + 1 < FIRST else controller(cost, passed, len(known), place + 1)
        gap = int(random.geometric(1 / period)) - 1
    return known


def margins(error, freedom, third):
    """Returns the distances from an estimate, whose third cumulant is `third`, to both ends of its interval."""
    # As in Counterpoint, the degrees of freedom are rounded down to a whole number.
    t = scipy.stats.t.ppf(0.975, max(1, math.floor(freedom + 1e-6)))
    skew = third / error**3 if error > 0 else 0.0
    if abs(skew) < 1e-3:
        return t * error, t * error
    # Hall (1992): On the removal of skewness by transformation.
    end = lambda t: 3 / skew * (numpy.cbrt(1 + skew * (t - skew / 6)) - 1) * error
    return end(t), -end(-t)


def estimate(known, calls):
    """Returns the total and the distances to the ends of its interval, by the formulas of docs/sampling.md. Unlike a
    report, also does this if too few calls were drawn for a reliable interval."""
    frame = numpy.array(known, dtype=float)
    weight, skipped, value = frame.T
    strata = numpy.floor(numpy.log2(weight)).astype(int)
    alone = strata == 0
    if alone.all():
        if len(value) == calls:
            return value.sum(), 0.0, 0.0
        raise ValueError("the first calls are no sample of the others")
    # Skipped calls belong to the class of the timed call after them. If its weight is 1, they belong to the class of
    # the last timed call before them that has another weight, or, if there is none, of the first such call.
    belongs = []
    for stratum in strata:
        belongs.append(belongs[-1] if stratum == 0 and belongs else stratum)
    belongs = numpy.array(belongs)
    first = numpy.argmax(~alone)
    belongs[:first] = strata[first]
    tail = calls - int((1 + skipped).sum())
    total, variances, freedoms, third = value[alone].sum(), [], [], 0.0

    def spread(which):
        """Returns the variance and the third moment of the values of a class, and its effective number of calls."""
        w, y = weight[which], value[which]
        difference = y - numpy.average(y, weights=w)
        n = which.sum()
        variance = numpy.average(difference**2, weights=w) * n / (n - 1)
        cubes = numpy.average(difference**3, weights=w) * n**2 / ((n - 1) * (n - 2)) if n > 2 else 0.0
        return variance, cubes, w.sum() ** 2 / (w**2).sum()

    classes = [stratum for stratum in numpy.unique(strata) if stratum > 0]
    for place, stratum in enumerate(classes):
        which = strata == stratum
        n = which.sum()
        population = n + skipped[belongs == stratum].sum() + (tail if stratum == belongs[-1] else 0)
        mean = numpy.average(value[which], weights=weight[which])
        total += population * mean
        if population <= n:
            continue
        effective = weight[which].sum() ** 2 / (weight[which] ** 2).sum()
        cubes = 0.0
        if n > 1:
            variance, cubes, freedom = spread(which)
            source = value[which]
        else:
            near = sorted(
                (abs(place - other), other > place, other)
                for other, number in enumerate(classes)
                if (strata == number).sum() > 1
            )
            if near:
                source = value[strata == classes[near[0][2]]]
                variance, _, freedom = spread(strata == classes[near[0][2]])
            else:
                source = value[which]
                variance, freedom = 0.0, effective
        left_out = 1 - n / population
        equal = 0.0
        if source.min() == source.max():
            half = (population - n) * 3 / freedom * max(abs(mean), 1)
            variance, equal, freedom = 0.0, (half / 1.96) ** 2, 1e9
        variances.append(population**2 * left_out * variance / effective + equal)
        third += population**3 * left_out * (2 * left_out - 1) * cubes / effective**2
        freedoms.append(max(freedom - 1, 1))
    variances = numpy.array(variances)
    if variances.sum() == 0:
        return total, 0.0, 0.0
    freedom = variances.sum() ** 2 / (variances**2 / freedoms).sum()
    return total, *margins(math.sqrt(variances.sum()), freedom, third)


def recent(cost, passed, known, place):
    return max(1, math.ceil(60 / (0.02 * passed / place)))


populations = {
    "constant": lambda n: numpy.full(n, 700.0),
    "alternating": lambda n: numpy.where(numpy.arange(n) % 2, 1_000.0, 100.0),
    "ramp": lambda n: numpy.linspace(100, 1_000, n),
    "bursts": lambda n: numpy.where(numpy.arange(n) // 500 % 5 == 0, 2_000, 100) * random.lognormal(0, 0.1, n),
    "heavy tail": lambda n: random.lognormal(6, 1, n),
    "slow at first": lambda n: numpy.append(1e6, random.normal(1_000, 100, n - 1)),
    "phases": lambda n: numpy.append(random.normal(200, 20, n // 2), random.normal(5_000, 500, n - n // 2)),
}
controllers = {
    # The period is constant: there is no controller.
    "fixed": (4_000, lambda *state: 32),
    # The period depends on the mean time of a call so far, so it changes a little with each call.
    "smooth": (4_000, recent),
    # The period is a power of two, which depends on the cost so far as a share of the time so far.
    "powers": (4_000, lambda cost, passed, known, place: 1 << min(9, max(0, int(math.log2(cost / (0.005 * passed)))))),
    # The period changes after each timed call.
    "restless": (4_000, lambda cost, passed, known, place: 10 + known % 30),
}


def show(name, known, calls, truth):
    print("draw", name)
    for weight, skipped, value in known:
        print("call", weight, skipped, repr(float(value)))
    print("calls", calls)
    print("truth", repr(float(truth)))
    print("expect", *(repr(float(number)) for number in estimate(known, calls)))


for what, (calls, controller) in controllers.items():
    for name, make in populations.items():
        for _ in range(DRAWS):
            times = make(calls)
            show(f"{name}, {what}", drawn(times, controller), calls, times.sum())
for _ in range(DRAWS):
    times = random.lognormal(6, 0.5, 3)
    show("three calls", drawn(times, recent), 3, times.sum())
    times = random.normal(1_000, 100, 40)
    known = drawn(times, lambda *state: 64)
    while known[-1][0] == 1:  # Without a drawn call, there is no total.
        known = drawn(times, lambda *state: 64)
    show("forty calls", known, 40, times.sum())
    times = random.lognormal(6, 0.5, 400)
    show("four hundred calls", drawn(times, lambda *state: 16), 400, times.sum())
    # Counters are read only in some of the timed calls: on average, in one of eight, and then in one of four.
    values = random.poisson(50, 20_000)
    show("counter", drawn(values, lambda *state: 16, 8), 20_000, values.sum())
    values = random.lognormal(8, 0.7, 20_000)
    show("skewed counter", drawn(values, lambda *state: 8, 4), 20_000, values.sum())
sys.stdout.flush()

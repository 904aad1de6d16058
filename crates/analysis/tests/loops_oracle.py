"""Makes populations of hits (entries of loops), samples them as instrumented code does, and prints the true totals.

This program follows include/counterpoint/loops.h, and uses no code of Counterpoint. The first 100 hits are timed.
From then on, the distance from one timed hit to the next is 1 + (random & 127) hits, with random numbers of xorshift64
(13, 7, 17). Expected totals and intervals are computed by numpy and scipy. For each draw (population with its random
sample), prints its name, its rows, and the true values (`truth ID WHAT VALUE`). For draws with one thread, also prints
the result of scipy (`expect ID TOTAL MARGIN`; MARGIN is `none` if there must be no interval).
"""

import math
import sys

import numpy
import scipy.stats

FIRST, MASK, DRAWS = 100, 127, 100
BITS = (1 << 64) - 1


def sampled(count, seed):
    """Returns the indices of the timed hits among `count` hits, and how many timed hits precede the first random one (0
    if there is no random one)."""
    state, place = seed | 1, FIRST
    places = list(range(min(FIRST, count)))
    while True:
        state ^= state << 13 & BITS
        state ^= state >> 7
        state ^= state << 17 & BITS
        place += 1 + (state & MASK)
        if place > count:
            return places, FIRST if len(places) > FIRST else 0
        places.append(place - 1)


def row(id, tid, times, seed):
    """Prints the row of a thread whose hits took `times`. Returns the estimated total of all hits and its margin, which
    numpy and scipy compute from the timed hits."""
    places, first = sampled(len(times), seed)
    timed = [int(times[place]) for place in places]
    sums = [sum(timed), sum(t * t for t in timed), first, sum(timed[:first]), sum(t * t for t in timed[:first])]
    print("row", id, tid, len(times), len(timed), len(timed), *sums, max(timed))
    if len(timed) - first < 2:
        first = 0
    rest = numpy.array(timed[first:], dtype=numpy.float64)
    population = len(times) - first
    total = float(sum(timed[:first])) + population * rest.mean()
    if len(rest) == population:
        return total, 0.0
    error = population * math.sqrt(1 - len(rest) / population) * scipy.stats.sem(rest, ddof=1)
    t = scipy.stats.t.ppf(0.975, len(rest) - 1)
    # `squares` is the sum of the squared distances from the mean, and no time is more than `most` above the mean.
    # `third` is the largest possible third moment of the total. `hall` is the distance from the total to the farther
    # end of Hall's interval, in standard errors.
    squares = float(((rest - rest.mean()) ** 2).sum())
    most = min(math.sqrt(squares), max(max(timed) - rest.mean(), 0))
    third = (population / len(rest)) ** 3 * (1 - len(rest) / population) * squares * most
    skew = third / error**3
    hall = 3 / skew * (1 - numpy.cbrt(1 - skew * (t + skew / 6)))
    return total, max(t, hall) * error


def within(total, margin, around):
    """Returns the margin of a loop's total, widened where necessary. `around` is the time of the function around the
    loop. Slow hits that were not timed may have taken the rest, `around` minus the total, so the margin is at least
    this rest. Returns None (no interval) if this rest is longer than the total, or if the total exceeds `around` by
    more than its margin. If all hits were timed, the margin stays 0."""
    if margin == 0:
        return margin
    left = around - total
    if left + margin < 0 or max(left, 0) > total:
        return None
    return max(margin, left)


def populations(random):
    """Returns, for the name of each population, its number of hits and a function that makes the times of its hits."""
    def warm(times):
        times[:FIRST] *= 10
        return times

    return {
        "normal": (10_000, lambda n: random.normal(1_000, 100, n)),
        "skewed": (20_000, lambda n: random.lognormal(7, 0.5, n)),
        "two modes": (20_000, lambda n: random.choice([500, 5_000], n, p=[0.8, 0.2])),
        "slow at first": (10_000, lambda n: warm(random.normal(1_000, 100, n))),
        "drifting": (20_000, lambda n: numpy.linspace(500, 1_500, n) + random.normal(0, 50, n)),
        # Timing every 64th hit would measure only one of the 64 different times.
        "periodic": (20_000, lambda n: 500 + 20 * (numpy.arange(n) % 64) + random.normal(0, 5, n)),
        "few": (600, lambda n: random.normal(1_000, 100, n)),
        "hardly any": (260, lambda n: random.normal(1_000, 100, n)),
        "before random ones": (101, lambda n: random.normal(1_000, 100, n)),
        "all": (90, lambda n: random.lognormal(7, 1, n)),
        "large": (10_000, lambda n: random.normal(1e9, 1e5, n)),
    }


def whole(times):
    return numpy.maximum(times, 1).astype(numpy.int64)


random = numpy.random.default_rng(15)
seed = lambda: int(random.integers(1, 1 << 63))
for name, (count, make) in populations(random).items():
    for _ in range(DRAWS):
        print("draw", name)
        times = whole(make(count))
        # The function around the loop has one hit, which takes a hundredth longer than the loop.
        around = int(times.sum() * 1.01)
        row(0, 1, numpy.array([around]), seed())
        total, margin = row(1, 1, times, seed())
        margin = within(total, margin, around)
        # An estimate above the time of the function around the loop is reduced to this time.
        total = min(total, around)
        print("truth 1 inclusive", int(times.sum()))
        print("expect 1", repr(float(total)), "none" if margin is None else repr(float(margin)))

# Three threads run a function. In each hit of the function, its loop has eight hits. Nothing
# instrumented is around the function, so nothing limits the times of hits that were not timed, and
# neither the function nor its loop has an interval.
for _ in range(DRAWS):
    print("draw nested")
    sums = numpy.zeros(2)
    for tid in (1, 2, 3):
        inner = whole(random.lognormal(6, 0.4, 8 * 4_000))
        outer = inner.reshape(-1, 8).sum(axis=1) + whole(random.normal(900, 100, 4_000))
        row(0, tid, outer, seed())
        row(1, tid, inner, seed())
        sums += [outer.sum(), inner.sum()]
    print("truth 0 inclusive", sums[0])
    print("truth 1 inclusive", sums[1])
    print("truth 0 self", sums[0] - sums[1])
    print("truth 1 share", sums[1] / sums[0])
sys.stdout.flush()

-- each op and counter: its value over all ranks, and per call
SELECT run, op_key, counter, unit, count(DISTINCT rank) AS ranks, sum(calls) AS calls,
       sum("value") AS "value",
       CAST(sum("value") AS DOUBLE) / CAST(sum(calls) AS DOUBLE) AS per_call
FROM counters
GROUP BY run, op_key, counter, unit
ORDER BY run, op_key, counter, unit

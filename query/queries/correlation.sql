-- each op and counter: how the counter goes with the duration of a call, over all ranks
SELECT run, op_key, counter, sum(calls) AS calls,
       pearson(sum(calls), sum(sum_ns), sum(sum_value), sum(sum_ns_ns), sum(sum_ns_value),
               sum(sum_value_value)) AS r
FROM counters
WHERE sum_ns_value IS NOT NULL
GROUP BY run, op_key, counter
ORDER BY run, op_key, counter

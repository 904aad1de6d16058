-- each op: the first call of each thread, and what it is of the total
SELECT run, op_key, op, sum(first_calls) AS first_calls, sum(first_ns) AS first_ns,
       CAST(sum(first_ns) AS DOUBLE) / CAST(sum(total_ns) AS DOUBLE) AS part_of_total
FROM stats
WHERE total_ns > 0 AND first_ns IS NOT NULL
GROUP BY run, op_key, op
ORDER BY first_ns DESC, run, op_key, op

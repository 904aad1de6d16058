-- each op in each run: calls and total time over all ranks
WITH of_op AS (
  SELECT run, op_key, op, count(DISTINCT rank) AS ranks, sum(calls) AS calls,
         sum(total_ns) AS total_ns, sum(total_low_ns) AS total_low_ns,
         sum(total_high_ns) AS total_high_ns
  FROM stats
  GROUP BY run, op_key, op
)
SELECT * FROM of_op
ORDER BY run, total_ns DESC NULLS LAST, op_key, op

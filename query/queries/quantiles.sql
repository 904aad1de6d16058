-- each op: quantiles of the duration of a call over all ranks, within 1/128
WITH merged AS (
  SELECT run, op_key, bucket, sum(calls) AS calls FROM hist GROUP BY run, op_key, bucket
), placed AS (
  SELECT run, op_key, bucket,
         sum(calls) OVER (PARTITION BY run, op_key ORDER BY bucket
                          ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto,
         sum(calls) OVER (PARTITION BY run, op_key) AS n
  FROM merged
)
SELECT run, op_key, max(n) AS calls,
       bucket_ns(min(CASE WHEN upto * 2 >= n THEN bucket END)) AS p50_ns,
       bucket_ns(min(CASE WHEN upto * 100 >= n * 99 THEN bucket END)) AS p99_ns,
       bucket_ns(min(CASE WHEN upto * 1000 >= n * 999 THEN bucket END)) AS p999_ns,
       bucket_ns(min(CASE WHEN upto * 10000 >= n * 9999 THEN bucket END)) AS p9999_ns
FROM placed
GROUP BY run, op_key
ORDER BY run, op_key

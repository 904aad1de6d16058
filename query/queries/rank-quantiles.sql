-- each rank and op: p50 and p99 of the duration of a call, within 1/128
WITH merged AS (
  SELECT run, rank, op_key, bucket, sum(calls) AS calls FROM hist GROUP BY run, rank, op_key, bucket
), placed AS (
  SELECT run, rank, op_key, bucket,
         sum(calls) OVER (PARTITION BY run, rank, op_key ORDER BY bucket
                          ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto,
         sum(calls) OVER (PARTITION BY run, rank, op_key) AS n
  FROM merged
)
SELECT run, rank, op_key, max(n) AS calls,
       bucket_ns(min(CASE WHEN upto * 2 >= n THEN bucket END)) AS p50_ns,
       bucket_ns(min(CASE WHEN upto * 100 >= n * 99 THEN bucket END)) AS p99_ns
FROM placed
GROUP BY run, rank, op_key
ORDER BY run, rank, op_key

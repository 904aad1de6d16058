-- each rank: its time in ops as a multiple of the mean over all ranks of the run, the slowest first
WITH of_rank AS (
  SELECT run, rank, sum(calls) AS calls, sum(self_ns) AS self_ns FROM stats GROUP BY run, rank
), of_run AS (
  SELECT run, count(*) AS ranks, sum(self_ns) AS self_ns FROM of_rank
  WHERE self_ns IS NOT NULL GROUP BY run
)
SELECT r.run, r.rank, r.calls, r.self_ns,
       CAST(r.self_ns AS DOUBLE) * CAST(a.ranks AS DOUBLE) / CAST(a.self_ns AS DOUBLE) AS of_mean
FROM of_rank r JOIN of_run a ON a.run = r.run
WHERE a.self_ns > 0 AND r.self_ns IS NOT NULL
ORDER BY of_mean DESC, r.run, r.rank

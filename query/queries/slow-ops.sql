-- the ops that make a rank slow: by how much their time on it is above the mean of the op's ranks
WITH of_rank AS (
  SELECT run, op_key, op, rank, sum(calls) AS calls, sum(total_ns) AS total_ns
  FROM stats GROUP BY run, op_key, op, rank
), of_op AS (
  SELECT run, op_key, op, count(*) AS ranks, sum(total_ns) AS total_ns
  FROM of_rank WHERE total_ns IS NOT NULL GROUP BY run, op_key, op
)
SELECT r.run, r.rank, r.op_key, r.op, r.calls, r.total_ns,
       CAST(r.total_ns AS DOUBLE) - CAST(o.total_ns AS DOUBLE) / CAST(o.ranks AS DOUBLE) AS above_mean_ns
FROM of_rank r JOIN of_op o ON o.run = r.run AND o.op_key = r.op_key AND o.op = r.op
WHERE o.ranks > 1 AND r.total_ns * o.ranks > o.total_ns
ORDER BY above_mean_ns DESC, r.run, r.rank, r.op_key, r.op
LIMIT 50

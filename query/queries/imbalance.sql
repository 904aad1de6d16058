-- each op: the rank with the most time, as a multiple of the mean over the ranks that have the op
WITH of_rank AS (
  SELECT run, op_key, op, rank, sum(total_ns) AS total_ns FROM stats GROUP BY run, op_key, op, rank
), of_op AS (
  SELECT run, op_key, op, count(*) AS ranks, sum(total_ns) AS total_ns, max(total_ns) AS most_ns
  FROM of_rank WHERE total_ns IS NOT NULL GROUP BY run, op_key, op
)
SELECT o.run, o.op_key, o.op, o.ranks, o.total_ns, o.most_ns, min(r.rank) AS rank,
       CAST(o.most_ns AS DOUBLE) * CAST(o.ranks AS DOUBLE) / CAST(o.total_ns AS DOUBLE) AS imbalance
FROM of_op o JOIN of_rank r
  ON r.run = o.run AND r.op_key = o.op_key AND r.op = o.op AND r.total_ns = o.most_ns
WHERE o.total_ns > 0
GROUP BY o.run, o.op_key, o.op, o.ranks, o.total_ns, o.most_ns
ORDER BY imbalance DESC, o.run, o.op_key, o.op

-- each machine: its ranks, calls and time in ops
WITH of_process AS (
  SELECT run, rank, part, process, sum(calls) AS calls, sum(self_ns) AS self_ns
  FROM stats GROUP BY run, rank, part, process
)
SELECT p.run, p.host, count(DISTINCT p.rank) AS ranks, sum(s.calls) AS calls, sum(s.self_ns) AS self_ns
FROM processes p JOIN of_process s
  ON s.run = p.run AND s.rank = p.rank AND s.part = p.part AND s.process = p.process
GROUP BY p.run, p.host
ORDER BY p.run, p.host

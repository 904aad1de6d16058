-- each run: how many of its ranks are in the dataset, how many of them several times, and from how many machines
WITH of_rank AS (
  SELECT run, rank, count(DISTINCT part) AS recordings FROM processes GROUP BY run, rank
)
SELECT p.run, max(p.world_size) AS world_size, count(DISTINCT p.rank) AS ranks,
       count(DISTINCT CASE WHEN r.recordings > 1 THEN p.rank END) AS ranks_with_several,
       count(DISTINCT p.host) AS hosts, count(DISTINCT p.part) AS parts,
       sum(p.calls) AS recorded_calls
FROM processes p JOIN of_rank r ON r.run = p.run AND r.rank = p.rank
GROUP BY p.run
ORDER BY p.run

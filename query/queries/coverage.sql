-- each run: how many of its ranks are in the dataset, from how many machines
SELECT run, max(world_size) AS world_size, count(DISTINCT rank) AS ranks,
       count(DISTINCT host) AS hosts, count(DISTINCT part) AS parts, sum(calls) AS recorded_calls
FROM processes
GROUP BY run
ORDER BY run

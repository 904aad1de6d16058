-- what was lost or distorted, and on how many ranks
SELECT run, loss, severity, count(DISTINCT rank) AS ranks, sum("count") AS "count"
FROM losses
GROUP BY run, loss, severity
ORDER BY run, loss, severity

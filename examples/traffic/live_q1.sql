-- Q1 over vehicles: segment by segment.
SELECT v.segment, ROUND(AVG(v.speed), 1) AS speed, COUNT(*) AS vehicles
FROM vehicles AS v WINDOW(RANGE 15 SECONDS SLIDE 5 SECONDS), known AS k
WHERE v.segment = k.segment AND k.person = 'ada'
GROUP BY v.segment
EMIT FINAL;

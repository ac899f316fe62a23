-- Q2: incidents on segments that Ada knows and that are slow, by description.
SELECT i.description, ROUND(AVG(slow.speed), 1) AS speed
FROM (SELECT sensor AS segment, AVG(speed) AS speed
      FROM traffic WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES)
      GROUP BY sensor HAVING AVG(speed) < 20) AS slow,
     known AS k, incidents AS i
WHERE slow.segment = k.segment AND k.person = 'ada' AND slow.segment = i.segment
GROUP BY i.description
EMIT FINAL;

-- Q2 over vehicles and what was reported in the last two hours.
SELECT i.description, ROUND(AVG(slow.speed), 1) AS speed
FROM (SELECT segment, AVG(speed) AS speed
      FROM vehicles WINDOW(RANGE 15 SECONDS SLIDE 5 SECONDS)
      GROUP BY segment HAVING AVG(speed) < 65) AS slow,
     known AS k, recent AS i
WHERE slow.segment = k.segment AND k.person = 'ada' AND slow.segment = i.segment
GROUP BY i.description
EMIT FINAL;

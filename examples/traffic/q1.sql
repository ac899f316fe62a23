-- Q1: the average speed of the segments that Ada knows.
SELECT ROUND(AVG(speed), 1) AS speed
FROM traffic WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES)
WHERE sensor IN (SELECT segment FROM known WHERE person = 'ada');

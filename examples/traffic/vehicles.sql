-- Every vehicle, from the two sensors of its lane: the paper's speed d / (t1 - t0) and length speed * (t2 - t0).
CREATE STREAM vehicles AS
SELECT u.segment AS segment,
       (d.place - u.place) / 5280 * 3600000000 / apart_us AS speed,
       (d.place - u.place) * u.passing_us / apart_us AS length
FROM (SELECT SUBSTRING(sensor, 1, 5) AS segment, place, passing_us
      FROM road EVENTS(level ABOVE 0.5) SAMPLE RATE 200 HZ WHERE sensor LIKE '%u') AS u
ZIP JOIN (SELECT SUBSTRING(sensor, 1, 5) AS segment, place
          FROM road EVENTS(level ABOVE 0.5) SAMPLE RATE 200 HZ WHERE sensor LIKE '%d') AS d
WITHIN 0 SECONDS TO 1 SECOND ON u.segment = d.segment;

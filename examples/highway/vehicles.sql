-- Standing queries about vehicles; a vehicle is over a magnetometer while its level is high.

-- name: count
SELECT lane, COUNT(*) AS vehicles
FROM road EVENTS(level ABOVE 0.6 BELOW 0.4) WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)
GROUP BY lane
SAMPLE EVERY 5556 US;

-- name: passages
SELECT sensor, lane, passing_us
FROM road EVENTS(level ABOVE 0.6 BELOW 0.4)
SAMPLE EVERY 5556 US;

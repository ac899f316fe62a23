-- Five standing queries of the highway's operators.

-- name: segment_speed
SELECT segment, AVG(speed) AS speed
FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE)
GROUP BY segment
SAMPLE EVERY 30 SECONDS;

-- name: slow_segments
SELECT segment, AVG(speed) AS speed
FROM traffic WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE)
GROUP BY segment
HAVING AVG(speed) < 30
SAMPLE EVERY 1 MINUTE;

-- name: standstill
SELECT sensor, speed FROM traffic WHERE speed < 10 SAMPLE EVERY 500 MS;

-- name: lane_flow
SELECT lane, SUM(flow) AS flow
FROM traffic WINDOW(RANGE 15 MINUTES SLIDE 15 MINUTES)
GROUP BY lane
SAMPLE EVERY 1 MINUTE;

-- name: fastest
SELECT MAX(speed) AS speed FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 HOUR) SAMPLE EVERY 5 MINUTES;
